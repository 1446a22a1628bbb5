// Panes of code whose lines are linked through the lines of the Program's text that they come from, the editor of that text, and drawings of it.
//
//   links.mark(lines, pinned)      marks what comes from these lines of the text, in every pane; `pinned` stays until something else is
//   codePane(title, code)          a pane of code: a list that the keyboard walks through
//   sourcePane(title, changed)     the pane of the text itself: `show(document)`, `text()`; where `changed` is given the text can be edited
"use strict";
const { links, codePane, sourcePane } = (() => {
  const { element, fill } = vyre;

  // ---- links

  const panes = new Set(), told = [];
  let pinned = [], hovered = null, now = null;
  function refresh() {
    const wanted = new Set(hovered ?? pinned);
    for (const pane of panes) {
      if (!pane.root.isConnected) { panes.delete(pane); continue; }
      for (const line of pane.marked) line.classList.remove("marked");
      pane.marked = [...wanted].flatMap((number) => pane.from.get(number) ?? []);
      for (const line of pane.marked) line.classList.add("marked");
    }
  }
  function scrolled(pane) {
    const first = pane.marked[0];
    if (!first || pane.root.contains(document.activeElement)) return;
    const box = pane.scroller, top = first.getBoundingClientRect().top - box.getBoundingClientRect().top + box.scrollTop;
    if (top < box.scrollTop || top + first.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 3;
  }
  const links = {
    mark(lines, stays) {
      if (stays) { pinned = lines; hovered = null; } else hovered = lines.length ? lines : null;
      refresh();
      if (!stays) return;
      for (const pane of panes) scrolled(pane);
      for (const tell of told) tell(lines);
    },
    tell(does) { told.push(does); },
    leave() { hovered = null; refresh(); },
    get pinned() { return pinned; },
    add(pane) { panes.add(pane); refresh(); },
  };

  function indexed(lines, origins) {
    const from = new Map();
    origins.forEach((of, k) => of.forEach((number) => { if (!from.has(number)) from.set(number, []); from.get(number).push(lines[k]); }));
    return from;
  }

  // ---- panes of code

  let numbered = 0;
  function codePane(title, code, label) {
    const id = `code-${numbered++}`;
    const lines = code.lines.map((text, k) => element("div", { role: "option", id: `${id}-${k}`, class: code.origins[k].length ? "line linked" : "line",
      "aria-selected": "false", "aria-label": text.trim() ? null : "blank", data: { number: String(k) } }, element("span", { class: "text", text: text || " " })));
    const list = element("div", { class: "code lines", role: "listbox", tabindex: "0", "aria-label": `${label ?? title}, code` }, lines);
    const note = code.more ? element("p", { class: "soft", text: `${vyre.count(code.more)} more lines are not shown` }) : null;
    const root = element("section", { class: "pane panel", "aria-label": label ?? title }, element("h3", { text: title }), list, note);
    let at = -1;
    function choose(k, focus) {
      if (k < 0 || k >= lines.length) return;
      if (at >= 0) { lines[at].setAttribute("aria-selected", "false"); lines[at].classList.remove("at"); }
      at = k;
      lines[k].setAttribute("aria-selected", "true");
      lines[k].classList.add("at");
      list.setAttribute("aria-activedescendant", lines[k].id);
      if (focus) lines[k].scrollIntoView({ block: "nearest" });
      links.mark(code.origins[k], true);
    }
    const place = (event) => { const line = event.target.closest?.(".line"); return line && list.contains(line) ? Number(line.dataset.number) : -1; };
    list.addEventListener("mouseover", (event) => { const k = place(event); if (k >= 0) links.mark(code.origins[k], false); });
    list.addEventListener("mouseleave", () => links.leave());
    list.addEventListener("click", (event) => choose(place(event), false));
    const page = () => Math.max(1, Math.floor(list.clientHeight / (lines[0]?.offsetHeight || 18)) - 1);
    const keys = { ArrowDown: () => at + 1, ArrowUp: () => Math.max(0, at - 1), Home: () => 0, End: () => lines.length - 1,
      PageDown: () => Math.min(lines.length - 1, at + page()), PageUp: () => Math.max(0, at - page()) };
    list.addEventListener("keydown", (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      choose(keys[event.key](), true);
    });
    const pane = { root, scroller: list, from: indexed(lines, code.origins), marked: [] };
    return { root, pane, lines };
  }

  // ---- the Program's text

  const WORDS = new Set(("program param buffer workgroup private table let var if else for in step loop break continue return region barrier grid_barrier fence " +
    "assert print read write read_write over grid subgroup tiles function doc true false unroll pipeline").split(" "));
  const TYPE = /^(bool|[iu](8|16|32|64)|f(16|32|64)|bf16|f8e[45]m[23])(x[234])?$/;
  const PIECE = /\/\/.*|"(?:[^"\\]|\\.)*"?|[A-Za-z_][A-Za-z0-9_.]*|[0-9][A-Za-z0-9_.]*|[^A-Za-z0-9_"/]+|./gu;
  function coloured(text) {
    return (text.match(PIECE) ?? []).map((piece) => {
      const kind = piece.startsWith("//") ? "comment" : piece[0] === '"' ? "string" : TYPE.test(piece) ? "type" : WORDS.has(piece) ? "word"
        : /^[0-9]/.test(piece) ? "number" : null;
      return kind ? element("span", { class: `c-${kind}`, text: piece }) : piece;
    });
  }

  const LEVELS = {
    grid: "the same for the whole grid", workgroup: "the same for a workgroup", subgroup: "the same for a subgroup", varying: "differs between invocations",
  };
  /** What the colours and marks beside a line say, in words. */
  function sentence(known) {
    const kept = sum(known.kept), proven = sum(known.proven);
    const together = known.control === "varying" ? "not all invocations get here together" : `the invocations of ${known.control === "grid" ? "the" : "a"} ${known.control} get here together`;
    const proofs = Object.entries(known.by).map(([proof, names]) => `${names.join(" and ")} by ${proof}`), by = proofs.length ? ` (${proofs.join(", ")})` : "";
    const checks = [kept ? `${kept} ${kept === 1 ? "check of an index" : "checks of indices"} kept` : "", proven ? `${proven} not needed${by}` : ""].filter(Boolean).join(", ");
    const because = (text, why) => (why ? `${text}: ${why}` : text);
    const uniform = because(LEVELS[known.level], known.why), way = because(together, known.why === known.why_control ? "" : known.why_control);
    return [uniform, way, checks].filter(Boolean).join("; ");
  }
  const sum = (counts) => Object.values(counts).reduce((a, b) => Math.max(a, b), 0);

  function sourcePane(title, changed) {
    const gutter = element("div", { class: "gutter", "aria-hidden": "true" });
    const text = element("div", { class: "code text", "aria-hidden": changed ? "true" : null });
    const input = changed ? element("textarea", { class: "code", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off",
      "aria-label": "The Program's text", "aria-describedby": "source-help" }) : null;
    const stack = element("div", { class: "stack-of-text" }, text, input);
    const scroller = element("div", { class: "editor scroll", tabindex: changed ? null : "0", role: changed ? null : "group", "aria-label": changed ? null : "The Program's text" },
      gutter, stack);
    const help = element("p", { class: "soft", id: "source-help", text: changed
      ? "Type: it is checked and lowered again. The line of the cursor, or under the mouse, is marked in all code."
      : "The line under the mouse is marked in all code; a click keeps it." });
    const line = element("p", { class: "soft", id: "line", role: "status" });
    links.tell(([number, ...rest]) => { line.textContent = number && !rest.length && about[number] ? `Line ${number}: ${sentence(about[number])}.` : ""; });
    const findings = element("ul", { class: "findings", "aria-label": "Findings" });
    const root = element("section", { class: "source panel", "aria-label": title }, element("h2", { text: title }), scroller, line, findings, legend(), help);
    const pane = { root, scroller, from: new Map(), marked: [] };
    let rows = [], about = {}, found = [];

    function legend() {
      return element("ul", { class: "legend", "aria-label": "Marks of lines" }, Object.entries(LEVELS).map(([name, words]) =>
        element("li", {}, element("span", { class: `swatch u-${name}` }), words)), element("li", {}, element("span", { class: "good", text: "✓ " }), "checks of indices not needed"),
        element("li", {}, element("span", { class: "warn", text: "? " }), "kept"));
    }

    function draw(lines) {
      rows = lines.map((line, k) => {
        const number = k + 1;
        const faults = found.filter((one) => one.line === number);
        const marks = faults.map((one) => element("span", { class: `fault ${one.severity}`, style: { left: `${Math.max(0, one.column - 1)}ch`, width: `${Math.max(1, one.width)}ch` } }));
        const playing = now && now.line === number ? element("span", { class: "playing", style: { left: `${Math.max(0, now.column - 1)}ch`, width: `${Math.max(1, now.width)}ch` } }) : null;
        return element("div", { class: "line", data: { number: String(number) } }, marks, playing, element("span", { class: "text" }, coloured(line).length ? coloured(line) : " "));
      });
      fill(text, rows);
      fill(gutter, lines.map((_, k) => {
        const number = k + 1, known = about[number];
        const kept = known ? sum(known.kept) : 0, proven = known ? sum(known.proven) : 0;
        const words = known ? sentence(known) : null;
        return element("div", { class: `row-of-gutter ${known ? `u-${known.level}` : ""}`, title: words },
          element("span", { class: kept ? "checks warn" : "checks good", title: words,
            text: kept ? `?${kept}` : proven ? `✓${proven}` : "" }), element("span", { class: "number", text: String(number) }));
      }));
      pane.from = new Map(rows.map((row, k) => [k + 1, [row]]));
      if (input) {
        input.style.height = text.offsetHeight + "px";
        input.style.width = Math.max(stack.clientWidth, ...lines.map((line) => line.length + 2)) > 0 ? `max(100%, ${Math.max(...lines.map((line) => line.length)) + 2}ch)` : "100%";
      }
      links.add(pane);
    }

    function list() {
      fill(findings, found.map((one) => element("li", { class: one.severity },
        element("button", { type: "button", class: "jump", disabled: !one.line, text: one.line ? `${one.code} line ${one.line}` : one.code, on: { click: () => jump(one.line, one.column) } }),
        element("span", { text: ` ${one.message}` }), one.help ? element("div", { class: "soft", text: `help: ${one.help}` }) : null)));
      findings.hidden = !found.length;
    }

    function jump(line, column) {
      links.mark([line], true);
      rows[line - 1]?.scrollIntoView({ block: "nearest" });
      if (input) {
        const start = input.value.split("\n").slice(0, line - 1).reduce((total, one) => total + one.length + 1, 0) + Math.max(0, column - 1);
        input.focus();
        input.setSelectionRange(start, start);
      }
    }

    const lineAt = (event) => {
      const top = text.getBoundingClientRect().top, height = rows[0]?.offsetHeight || 18;
      const number = Math.floor((event.clientY - top) / height) + 1;
      return number >= 1 && number <= rows.length ? number : 0;
    };
    stack.addEventListener("mousemove", (event) => { const number = lineAt(event); links.mark(number ? [number] : [], false); });
    stack.addEventListener("mouseleave", () => links.leave());
    if (input) {
      const caret = () => links.mark([input.value.slice(0, input.selectionStart).split("\n").length], true);
      input.addEventListener("input", () => { about = {}; found = []; draw(input.value.split("\n")); caret(); changed(input.value); });
      input.addEventListener("keyup", caret);
      input.addEventListener("click", caret);
    } else {
      stack.addEventListener("click", (event) => { const number = lineAt(event); if (number) links.mark([number], true); });
    }

    return {
      root,
      show(shown) {
        about = shown.about;
        found = shown.findings;
        const lines = input && input.value !== "" && input.value === shown.text ? input.value.split("\n") : shown.source.lines;
        if (input && input.value !== shown.text) input.value = shown.text;
        draw(input ? input.value.split("\n") : lines);
        list();
      },
      play(place) {
        now = place;
        draw(input ? input.value.split("\n") : rows.map((row) => row.querySelector(".text").textContent));
        const spot = text.querySelector(".playing")?.getBoundingClientRect(), box = scroller.getBoundingClientRect();
        if (!spot) return;
        const left = box.left + gutter.offsetWidth + 8;
        if (spot.left < left) scroller.scrollLeft -= left - spot.left;
        else if (spot.right > box.right - 8) scroller.scrollLeft += Math.min(spot.left - left, spot.right - box.right + 16);
      },
      text: () => (input ? input.value : rows.map((row) => row.querySelector(".text").textContent).join("\n")),
      fail(message) { found = [{ code: "", message, help: "", line: 0, column: 0, width: 0, severity: "error" }]; list(); },
    };
  }

  return { links, codePane, sourcePane };
})();
