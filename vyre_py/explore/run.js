// A run on the interpreter, to step through: the lanes of a workgroup, their values, and memory as pictures.
//
//   runView(text, facts, given, recording, play)   `text()` is the Program; `recording` what is known already, or null; `play(place)` shows where a step is
"use strict";
const runView = (() => {
  const { element, fill, ask, live, say, count } = vyre;
  const SHOWN = 64, LISTED = 32;

  const told = (value) => (Array.isArray(value) ? `(${value.map(told).join(", ")})` : typeof value === "boolean" ? String(value) : String(value));
  const plain = (value) => (Array.isArray(value) ? plain(value[0]) : typeof value === "boolean" ? Number(value) : Number(value));

  /** The state of memories and values after each moment; going back begins anew. */
  function player(recording) {
    const start = () => ({ at: -1, memory: new Map(recording.memories.map((one) => [one.name, one.first.slice()])), values: new Map(), said: [] });
    let state = start();
    return (k) => {
      if (k < state.at) state = start();
      while (state.at < k) {
        const moment = recording.moments[++state.at];
        const held = state.memory.get(moment.memory);
        for (const [index, value] of moment.changes) if (held && index < held.length) held[index] = value;
        if (moment.value) {
          const key = moment.name || `${moment.line}:${moment.column}:${moment.does}`;
          state.values.delete(key);
          state.values.set(key, moment);
        }
        state.said.push(...moment.said);
      }
      return state;
    };
  }

  // ---- memory

  // Kind of finding -> what is said of an element.
  const FAULTS = { race: "accesses of it race", unwritten: "read before anything wrote it", assert: "an assert failed for it" };
  /** The elements that findings are about: by memory, by number, what is said of each. */
  function faultsOf(findings) {
    const faults = new Map();
    for (const one of findings) for (const [name, elements] of Object.entries(one.elements)) {
      if (!faults.has(name)) faults.set(name, new Map());
      for (const at of elements) faults.get(name).set(at, FAULTS[one.kind]);
    }
    return faults;
  }

  function picture(one, elements, moment, faults) {
    const blamed = faults?.get(one.name) ?? new Map();
    const touched = new Set(moment && moment.memory === one.name ? moment.touched.filter((at) => at >= 0) : []);
    const changed = new Set(moment && moment.memory === one.name ? moment.changes.map(([at]) => at) : []);
    const rank = one.shape.length, columns = Math.min(rank > 1 ? one.shape[rank - 1] : Math.min(one.count, 32), 128) || 1;
    const numbers = elements.map(plain), finite = numbers.filter(Number.isFinite);
    const low = Math.min(...finite, 0), high = Math.max(...finite, low + 1);
    const part = (value) => (Number.isFinite(value) ? (value - low) / (high - low) : 0);
    const small = elements.length <= SHOWN;
    const head = `${one.name}: ${one.type}[${one.shape.join(", ")}]`;
    const listed = [...blamed.keys()].filter((at) => at < elements.length), some = listed.slice(0, 8).join(", ") + (listed.length > 8 ? ", …" : "");
    const wrong = listed.length ? ` at fault: ${some} (${blamed.get(listed[0])})` : "";
    const does = touched.size ? ` ${moment.writes ? "written" : "read"}: ${touched.size} elements` : "";
    let drawn;
    if (elements.length <= 1024) {
      const cells = elements.map((value, k) => element("span", { class: `cell${touched.has(k) ? (moment.writes ? " written" : " read") : ""}${changed.has(k) ? " changed" : ""}${blamed.has(k) ? " at-fault" : ""}`,
        style: { "--part": `${Math.round(100 * part(numbers[k]))}%` }, title: `${one.name}[${k}] = ${told(value)}${blamed.has(k) ? `: ${blamed.get(k)}` : ""}` }, small ? told(value) : null));
      drawn = element("div", { class: `cells${small ? " numbers" : ""}`, role: "img", "aria-label": `${head}.${does}${wrong} ${elements.slice(0, LISTED).map(told).join(" ")}`,
        style: { "grid-template-columns": rank === 1 && small ? "repeat(auto-fill, minmax(3.2em, max-content))" : `repeat(${columns}, ${small ? "minmax(2.4em, auto)" : "9px"})` } }, cells);
    } else {
      const rows = Math.ceil(elements.length / columns);
      drawn = element("canvas", { width: String(columns), height: String(rows), role: "img", "aria-label": `${head}.${does}${wrong}`, style: { width: `${columns * Math.max(2, Math.floor(320 / columns))}px` } });
      const painter = drawn.getContext("2d"), image = painter.createImageData(columns, rows);
      numbers.forEach((value, k) => {
        const shade = Math.round(255 * part(value));
        image.data.set(blamed.has(k) ? [200, 30, 30, 255] : touched.has(k) ? [216, 120, 30, 255] : [shade, shade, shade, 255], 4 * k);
      });
      painter.putImageData(image, 0, 0);
    }
    return element("figure", { class: "memory" }, element("figcaption", {}, element("code", { text: head }), element("span", { class: "soft", text: ` ${one.space}${does}` }), wrong ? element("span", { class: "bad", text: wrong }) : null,
      one.count > elements.length ? element("span", { class: "soft", text: `; the first ${count(elements.length)} of ${count(one.count)}` }) : null), drawn);
  }

  // ---- values

  function valuesTable(recording, state, moment) {
    const lanes = Math.min(recording.lanes, LISTED);
    const rows = [...state.values].filter(([key, one]) => one.name || one === moment || (moment && one.line === moment.line)).reverse();
    if (!rows.length) return element("p", { class: "soft", text: "No value is bound yet." });
    if (recording.tiles) {
      return element("div", { class: "stack" }, rows.slice(0, 6).map(([key, one]) => (one.shape.length
        ? picture({ name: one.name || one.does, type: one.type, shape: one.shape, space: "tile", count: one.value.length }, one.value, null)
        : element("p", {}, element("code", { text: `${one.name || one.does} = ${told(one.value[0])}` })))));
    }
    const head = element("tr", {}, element("th", { scope: "col", text: "value" }), element("th", { scope: "col", text: "type" }),
      Array.from({ length: lanes }, (_, lane) => element("th", { scope: "col", class: "number", text: String(lane) })));
    const cell = (one, lane) => {
      const shared = one.value.length === 1;
      const off = one.mask && one.mask[lane] === "0";
      return element("td", { class: `number${off ? " off" : ""}`, text: off ? "·" : told(shared ? one.value[0] : one.value[lane]), title: off ? `lane ${lane} was off` : null });
    };
    const body = rows.map(([key, one]) => element("tr", { class: one === moment ? "fresh" : null }, element("th", { scope: "row" }, element("code", { text: one.name || `line ${one.line}: ${one.does}` })),
      element("td", { class: "soft", text: one.type }), Array.from({ length: lanes }, (_, lane) => cell(one, lane))));
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Values, lane by lane" },
      element("table", { class: "values" }, element("caption", { class: "unseen", text: "Values, a column for each lane" }), element("thead", {}, head), element("tbody", {}, body)),
      recording.lanes > lanes ? element("p", { class: "soft", text: `The first ${lanes} of ${recording.lanes} lanes.` }) : null);
  }

  // ---- the view

  function words(moment, recording) {
    const on = moment.mask ? [...moment.mask].filter((bit) => bit === "1").length : recording.lanes;
    const where = moment.memory ? ` ${moment.writes ? "to" : "from"} ${moment.memory}` : "";
    const outside = moment.memory && moment.touched.length && !moment.mask ? moment.touched.filter((at) => at < 0).length : 0;
    return `line ${moment.line}: ${moment.does}${where}${moment.name ? ` (${moment.name})` : ""}, ${on} of ${recording.lanes} ${recording.tiles ? "workgroups" : "lanes"} on`
      + (outside ? `; ${outside} outside, which ${moment.writes ? "are dropped" : "give zero"}` : "") + (moment.bad.length ? (moment.memory ? `; lane ${moment.bad[0]} races` : `; fails in ${moment.bad.length} lanes`) : "");
  }

  function shownRun(recording, facts, play) {
    if (recording.error) return element("p", { class: "bad", text: recording.error });
    const moments = recording.moments, at = player(recording), faults = faultsOf(recording.findings);
    const lanes = element("div", {}), values = element("div", {}), memory = element("div", { class: "memories" }), said = element("pre", { class: "said", "aria-label": "Printed" });
    const what = element("p", { class: "what", role: "status", "aria-live": "polite" });
    const slider = element("input", { type: "range", min: "0", max: String(Math.max(0, moments.length - 1)), value: "0", "aria-label": "Step", on: { input: () => go(Number(slider.value)) } });
    let k = 0;
    const other = (from, by) => { let j = from + by; while (j > 0 && j < moments.length - 1 && moments[j].line === moments[from].line) j += by; return j; };
    const button = (text, label, does) => element("button", { type: "button", "aria-label": label, title: label, text, on: { click: () => go(does()) } });
    const controls = element("div", { class: "row controls", role: "group", "aria-label": "Steps" }, button("|◀", "first step", () => 0), button("◀◀", "line before", () => other(k, -1)),
      button("◀", "step back", () => k - 1), button("▶", "step", () => k + 1), button("▶▶", "next line", () => other(k, 1)), button("▶|", "last step", () => moments.length - 1), slider);
    function go(to) {
      k = Math.min(Math.max(0, to), moments.length - 1);
      slider.value = String(k);
      const moment = moments[k], state = at(k);
      slider.setAttribute("aria-valuetext", `${k + 1} of ${moments.length}`);
      what.textContent = `${k + 1} of ${moments.length}. ${words(moment, recording)}`;
      const races = recording.findings.filter((one) => one.kind === "race").length > 0 && k === moments.length - 1;
      what.classList.toggle("bad", moment.bad.length > 0 || races);
      const bad = new Set(moment.bad);
      if (!recording.tiles) {
        fill(lanes, workgroupDrawing(recording.workgroup, recording.subgroup, (lane) => {
          const off = moment.mask && moment.mask[lane] === "0";
          const value = moment.value && !off ? moment.value[moment.value.length === 1 ? 0 : lane] : undefined;
          return { class: bad.has(lane) ? "bad-lane" : off ? "off" : "on", title: `lane ${lane}: ${off ? "off" : value === undefined ? "on" : told(value)}` };
        }));
      }
      fill(values, valuesTable(recording, state, moment));
      fill(memory, recording.memories.map((one) => picture(one, state.memory.get(one.name), moment, faults)));
      said.hidden = !state.said.length;
      said.textContent = state.said.join("\n");
      play(moment);
      links.mark(moment.line ? [moment.line] : [], true);
    }
    const found = recording.findings.map((one) => element("li", { class: one.kind === "unwritten" ? "warning" : "error" },
      element("button", { type: "button", class: "jump", text: `${one.kind}${one.line ? `, line ${one.line}` : ""}`, on: { click: () => {
        const last = moments.findLastIndex((moment) => moment.line === one.line && (one.kind !== "assert" || moment.bad.length));
        if (last >= 0) go(last); else if (one.line) links.mark([one.line], true);
      } } }), element("span", { text: ` ${one.code} ${one.message}` })));
    const root = element("div", { class: "stack" },
      element("ul", { class: "findings", "aria-label": "What the run found", hidden: found.length ? null : true }, found),
      found.length && recording.made_up.length ? element("p", { class: "soft", text: `Made up: ${recording.made_up.join(", ")}. What was found may come of that: give what the Program is meant for.` }) : null,
      recording.ended ? element("p", { class: "warn", text: recording.ended }) : null,
      element("section", { class: "panel", "aria-label": "Steps of the run" }, controls, what, said),
      element("div", { class: "row top" },
        element("figure", { class: "grid" }, gridDrawing(facts, recording.groups, recording.group), lanes, element("figcaption", { class: "soft", text: `workgroup ${recording.group} of ${recording.groups.join(" × ")}${recording.tiles ? "" : "; filled lanes are on"}` })),
        element("section", { class: "panel fills", "aria-label": "Memory" }, element("h2", { text: "Memory" }), memory)),
      element("section", { class: "panel", "aria-label": "Values" }, element("h2", { text: "Values, lane by lane" }), values));
    root.addEventListener("keydown", (event) => {
      if (event.target === slider || event.target.closest(".scroll, input, select")) return;
      const keys = { ArrowRight: k + 1, ArrowLeft: k - 1, ArrowDown: other(k, 1), ArrowUp: other(k, -1) };
      if (event.key in keys && controls.contains(event.target)) { event.preventDefault(); go(keys[event.key]); }
    });
    if (moments.length) go(0); else what.textContent = "The workgroup ran no statement.";
    return root;
  }

  function runView(text, facts, given, recording, play) {
    const body = element("div", {});
    if (!facts) return element("p", { class: "soft", text: "It runs once the Program keeps every rule." });
    const shown = (made) => { fill(body, shownRun(made, facts, play)); return made; };
    if (!live) {
      if (recording) shown(recording); else fill(body, element("p", { class: "soft", text: "There is no run in this file." }));
      return element("div", { class: "stack" }, recording?.given ? element("p", {}, "Run with ", element("code", { text: Object.entries(recording.given).map(([name, value]) => `${name}=${value}`).join(" ") })) : null, body);
    }
    const names = [...facts.dims.map((name) => [name, "size"]), ...facts.params.map(([name, type]) => [name, type]),
      ...facts.memories.filter((one) => one.space === "buffer").map((one) => [one.name, `${one.type}[${one.shape.join(", ")}]`])];
    const inputs = new Map(names.map(([name, type], k) => [name, element("input", { id: `given-${k}`, size: "10", value: given[name] ?? "", placeholder: type, list: type.includes("[") ? "fills" : null })]));
    const group = element("input", { id: "given-group", size: "4", value: "0", inputmode: "numeric" });
    const button = element("button", { type: "submit", text: "Run" });
    const form = element("form", { class: "row", "aria-label": "Arguments of the run", on: { submit: (event) => { event.preventDefault(); run(); } } },
      names.map(([name], k) => [element("label", { for: `given-${k}`, text: name }), inputs.get(name)]), element("label", { for: "given-group", text: "workgroup" }), group, button,
      element("datalist", { id: "fills" }, ["ramp", "zeros", "ones", "random"].map((value) => element("option", { value }))));
    async function run() {
      const wanted = Object.fromEntries([...inputs].map(([name, input]) => [name, input.value]).filter(([, value]) => value.trim()));
      button.disabled = true;
      try {
        const made = shown(await ask("recording", { text: text(), given: wanted, group: Number(group.value) }));
        for (const [name, input] of inputs) { input.value = made.given[name]; given[name] = made.given[name]; }
        say(`The run has ${made.moments.length} steps`);
      } catch (error) {
        fill(body, element("p", { class: "bad", role: "alert", text: error.message }));
      } finally {
        button.disabled = false;
      }
    }
    run();
    return element("div", { class: "stack" }, form, element("p", { class: "soft", text: "On the interpreter, watched for races. A buffer is ramp, zeros, ones, random, or numbers with commas between." }), body);
  }

  return runView;
})();
