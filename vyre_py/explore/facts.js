// What is known of a Program: its shape, drawn; its memories; what its kernels take of a GPU; and its passes.
"use strict";
const { factsView, passesView, gridDrawing, workgroupDrawing } = (() => {
  const { element, svg, fill, count } = vyre;
  const AXES = "xyz";

  const table = (name, head, rows) => element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${name}, table` },
    element("table", {}, element("caption", { class: "unseen", text: name }),
      element("thead", {}, element("tr", {}, head.map(([text, kind]) => element("th", { scope: "col", class: kind, text })))),
      element("tbody", {}, rows.map((row) => element("tr", {}, row.map((cell, k) => element(k ? "td" : "th", { scope: k ? null : "row", class: head[k][1] }, cell)))))));

  // ---- the grid

  const SIDE = 9, GAP = 2, MOST = 32;
  /** One workgroup's invocations; subgroups in turns of two shades. `lane` says more of each: a class and a title. */
  function workgroupDrawing(size, subgroup, lane) {
    const [x, y, z] = size, columns = Math.min(x, MOST), rows = Math.ceil(x / columns) * y * z, shown = Math.min(rows, MOST);
    const width = columns * (SIDE + GAP), height = shown * (SIDE + GAP);
    const cells = [];
    for (let row = 0; row < shown; row++) {
      for (let column = 0; column < columns; column++) {
        const perRow = Math.ceil(x / columns), along = (row % perRow) * columns + column;
        if (along >= x) continue;
        const index = Math.floor(row / perRow) * x + along;
        const given = lane?.(index) ?? {};
        cells.push(svg("rect", { x: column * (SIDE + GAP), y: row * (SIDE + GAP), width: SIDE, height: SIDE, rx: 2,
          class: `lane ${subgroup && Math.floor(index / subgroup) % 2 ? "odd" : "even"} ${given.class ?? ""}`, data: { lane: String(index) } },
          svg("title", { text: given.title ?? `invocation ${index}` })));
      }
    }
    const words = `A workgroup of ${size.join(" by ")} invocations${rows > shown ? `, of which ${shown * columns} are drawn` : ""}`;
    return svg("svg", { class: "workgroup", role: "img", "aria-label": words, viewBox: `0 0 ${width} ${height}`, width, height }, cells);
  }

  /** The grid: workgroups along x and y, the first of them `chosen`. `groups` are their numbers, where they are known, else `extents` as text. */
  function gridDrawing(facts, groups, chosen) {
    const known = (axis) => (groups ? groups[axis] : /^\d+$/.test(facts.extents[axis])
      ? Math.ceil(Number(facts.extents[axis]) / (facts.over && facts.workgroup[axis] ? facts.workgroup[axis] : 1)) : null);
    const [nx, ny] = [known(0), known(1)];
    const columns = Math.min(nx ?? 6, 12), rows = Math.min(ny ?? 4, 8), side = 22, gap = 4;
    const cells = [];
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const number = row * (nx ?? columns) + column;
        cells.push(svg("rect", { x: column * (side + gap), y: row * (side + gap), width: side, height: side, rx: 3,
          class: number === (chosen ?? 0) ? "group chosen" : "group" }, svg("title", { text: `workgroup ${column}, ${row}` })));
      }
    }
    const size = (axis) => {
      const extent = facts.extents[axis], per = facts.workgroup[axis];
      return groups ? String(groups[axis]) : facts.over && per > 1 && !facts.tiles ? `ceil(${extent} / ${per})` : extent;
    };
    const groupsOf = [0, 1, 2].map(size).filter((text, axis) => axis === 0 || text !== "1").join(" × ");
    const words = `${groupsOf} ${groupsOf === "1" ? "workgroup" : "workgroups"}`;
    const width = columns * (side + gap), height = rows * (side + gap);
    const more = (nx === null || nx > columns || ny === null || ny > rows);
    return element("figure", { class: "grid" },
      svg("svg", { role: "img", "aria-label": `The grid: ${words}`, viewBox: `0 0 ${width + 18} ${height + 4}`, width: width + 18, height: height + 4 }, cells,
        more ? svg("text", { x: width + 2, y: height - 8, class: "soft", text: "…" }) : null),
      element("figcaption", { text: words + (facts.over ? `, over ${facts.extents.filter((text, axis) => axis === 0 || text !== "1").join(" × ")} ${facts.tiles ? "" : "invocations"}` : "") }));
  }

  function shape(facts) {
    const size = facts.workgroup.filter((extent, axis) => axis === 0 || extent > 1).join(" × ");
    return element("section", { class: "panel", "aria-label": "Grid and workgroup" }, element("h2", { text: "Grid and workgroup" }),
      facts.doc ? element("p", { text: facts.doc }) : null,
      element("div", { class: "row drawings" }, gridDrawing(facts), facts.tiles
        ? element("p", { class: "soft", text: "A Program of tiles: a workgroup works on whole tiles; how many invocations it has is the target's choice." })
        : element("figure", { class: "grid" }, workgroupDrawing(facts.workgroup, facts.subgroup),
          element("figcaption", { text: `one workgroup: ${size} invocations${facts.subgroup ? `, in subgroups of ${facts.subgroup}` : ""}` }))));
  }

  const bytes = (size) => (size === null ? "by its sizes" : size >= 1024 ? `${(size / 1024).toFixed(1)} KiB` : `${size} B`);
  function declared(facts) {
    const rows = facts.memories.map((one) => [element("code", { text: one.name }), one.space, element("code", { text: `${one.type}[${one.shape.join(", ")}]` }), one.access,
      one.space === "buffer" ? "" : bytes(one.size_bytes)]);
    const shared = facts.memories.filter((one) => one.space === "workgroup").reduce((total, one) => total + (one.size_bytes ?? 0), 0);
    return element("section", { class: "panel", "aria-label": "Arguments and memories" }, element("h2", { text: "Arguments and memories" }),
      facts.dims.length ? element("p", {}, "Sizes: ", element("code", { text: facts.dims.join(", ") })) : null,
      facts.params.length ? element("p", {}, "Scalars: ", element("code", { text: facts.params.map(([name, type]) => `${name}: ${type}`).join(", ") })) : null,
      table("Memories", [["name"], ["where"], ["type and shape"], ["access"], ["takes"]], rows),
      element("p", { class: "soft", text: `${facts.statements} statements; ${bytes(shared)} of workgroup memory declared${facts.capabilities.length ? `; asks for ${facts.capabilities.join(", ")}` : ""}` }));
  }

  // ---- kernels

  function held(kernel) {
    const figures = kernel.occupancy;
    if (!figures) return element("p", { class: "soft", text: "For this architecture there are no figures of a multiprocessor." });
    const part = figures.most_warps ? figures.warps / figures.most_warps : 0;
    const limits = Object.entries(figures.by).map(([name, most]) => `${name}: ${most}`).join(", ");
    return element("div", {},
      element("div", { class: "bar", role: "img", "aria-label": `Occupancy ${Math.round(100 * part)} percent` }, element("span", { style: { width: `${100 * part}%` } })),
      element("p", {}, `${Math.round(100 * part)} % occupancy: ${figures.workgroups} workgroups, ${figures.warps} of ${figures.most_warps} warps at once on a multiprocessor. `,
        element("span", { class: "soft", text: `Limited by ${figures.limited.join(" and ")} (workgroups by ${limits}).` })));
  }

  const NAMES = { registers: "registers", spill_store_bytes: "spilled, stored", spill_load_bytes: "spilled, loaded", stack_bytes: "stack", workgroup_bytes: "workgroup memory",
    barriers: "barriers", constant_bytes: "constants" };
  function kernels(shown) {
    const parts = shown.kernels.map((kernel) => {
      const spills = (kernel.figures.spill_store_bytes ?? 0) + (kernel.figures.spill_load_bytes ?? 0);
      const rows = Object.entries(kernel.figures).map(([name, figure]) => [NAMES[name] ?? name, name.endsWith("_bytes") ? bytes(figure) : String(figure)]);
      return element("div", { class: "kernel" }, element("h3", {}, element("code", { text: kernel.symbol }), ` for ${kernel.target}`),
        element("p", { class: spills ? "bad" : "good", text: spills ? `spills ${bytes(spills)}` : "no spills" }), held(kernel),
        table(`What ${kernel.symbol} takes`, [["figure"], ["of a thread, or a workgroup", "number"]], rows));
    });
    return element("section", { class: "panel", "aria-label": "Registers and occupancy" }, element("h2", { text: "Registers and occupancy" }),
      parts.length ? element("div", { class: "row top" }, parts) : element("p", { class: "soft", text: "These come from NVIDIA's assembler: there is no machine code of an NVIDIA GPU here. See SASS among the code." }));
  }

  function checks(shown) {
    const rows = shown.passes.map((passes) => [passes.target, String(passes.kept), String(passes.proven)]);
    return element("section", { class: "panel", "aria-label": "Checks of indices" }, element("h2", { text: "Checks of indices" }),
      table("Checks of indices", [["target"], ["kept in the code", "number"], ["proven, or under one guard", "number"]], rows), eachCheck(shown));
  }

  /** Each index by line, and what proves it for each target; what several checks of one index have alike is said once. */
  function eachCheck(shown) {
    const places = new Map();
    shown.passes.forEach((passes, k) => passes.checks.forEach((one) => {
      const key = `${one.line} ${one.what}`, place = places.get(key) ?? { line: one.line, what: one.what, said: shown.passes.map(() => new Set()) };
      place.said[k].add(one.kept ? "checked" : one.by || "proven");
      places.set(key, place);
    }));
    const lines = [...places.values()].sort((a, b) => a.line - b.line);
    if (!lines.length) return null;
    const rows = lines.map((one) => [element("button", { type: "button", class: "jump", text: `line ${one.line}`, on: { click: () => links.mark([one.line], true) } }),
      element("code", { text: one.what }), ...one.said.map((said) => [...said].join("; "))]);
    return element("details", {}, element("summary", { text: "Each index, and what proves that it lies inside" }),
      table("Each index", [["line"], ["index of"], ...shown.passes.map((passes) => [passes.target])], rows));
  }

  function factsView(shown) {
    if (!shown.facts) return element("p", { class: "soft", text: "There are facts once the Program keeps every rule." });
    return element("div", { class: "stack" }, shape(shown.facts), kernels(shown), checks(shown), declared(shown.facts));
  }

  // ---- passes

  const chosen = { target: "", pass: "" };  // what was looked at, before the text was changed
  function passesView(shown) {
    if (!shown.passes.length) return element("p", { class: "soft", text: "There are passes once the Program keeps every rule." });
    const panel = element("div", { class: "stack" });
    const choice = element("select", { id: "pass-target", on: { change: () => draw() } }, shown.passes.map((one, k) => element("option", { value: String(k), text: one.target })));
    choice.value = String(Math.max(0, shown.passes.findIndex((one) => one.target === chosen.target)));
    const root = element("div", { class: "stack" }, element("div", { class: "row" }, element("label", { for: "pass-target", text: "Passes for" }), choice), panel);
    function draw() {
      const passes = shown.passes[Number(choice.value)];
      const rows = passes.steps.map((step, k) => [`${k + 1}. ${step.name}`, step]);
      const body = element("div", {});
      const buttons = rows.map(([name, step], k) => element("button", { type: "button", "aria-pressed": "false", class: step.rows.length ? "" : "still", on: { click: () => show(k) } },
        name, element("span", { class: "soft", text: step.before === step.after ? ` ${step.after}` : ` ${step.before} → ${step.after}` })));
      function show(k) {
        buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(j === k)));
        const step = rows[k][1];
        [chosen.target, chosen.pass] = [passes.target, rows[k][0]];
        const came = step.rows.filter(([tag]) => tag === "+").length, went = step.rows.filter(([tag]) => tag === "-").length;
        const words = step.note || `${came} lines came, ${went} went`;
        fill(body, element("p", { class: "soft", text: `${rows[k][0]}: ${step.before} statements before, ${step.after} after, ${(step.elapsed_ns / 1e6).toFixed(2)} ms; ${words}` }));
        if (!step.rows.length) return;
        const code = { lines: step.rows.map(([, text]) => text), origins: step.rows.map(([, , origins]) => origins), more: 0 };
        const made = codePane(`after ${step.name}`, code, `Program after ${step.name}`);
        made.lines.forEach((line, j) => {
          const tag = step.rows[j][0];
          line.prepend(element("span", { class: "tag", text: tag }));
          if (tag !== " ") line.classList.add(tag === "+" ? "came" : "went");
        });
        body.append(made.root);
        links.add(made.pane);
      }
      fill(panel, element("div", { class: "row", role: "group", "aria-label": "Passes in their order" }, buttons), body);
      const before = rows.findIndex(([name]) => name === chosen.pass), first = before >= 0 ? before : rows.findIndex(([, step]) => step.rows.length);
      if (rows.length) show(Math.max(0, first));
    }
    draw();
    return root;
  }

  return { factsView, passesView, gridDrawing, workgroupDrawing };
})();
