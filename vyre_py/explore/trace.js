// A trace: its spans on their tracks, what they add up to, and a roofline of the launches of which the work is known.
"use strict";
(() => {
  const { element, svg, fill, data, count } = vyre;
  const KINDS = [["compile", "compiling"], ["bind", "binding"], ["launch", "launches and dispatches"], ["device", "kernels on the device"],
    ["transfer", "transfers"], ["other", "other"]];
  const ROW = 18, HEAD = 20, LEFT = 0, WIDTH = 1000, LEAST = 0.6, LETTER = 6.2;
  const { tracks, names, rows, said, points, roofs } = data;
  const begin = rows.reduce((least, row) => Math.min(least, row[3]), Infinity), end = rows.reduce((most, row) => Math.max(most, row[3] + row[4]), -Infinity);
  const whole = rows.length ? [begin, Math.max(end, begin + 1e-3)] : [0, 1];
  let [from, to] = whole, chosen = null;

  const time = (us) => us >= 1e6 ? `${(us / 1e6).toPrecision(3)} s` : us >= 1e3 ? `${(us / 1e3).toPrecision(3)} ms` : us >= 1 ? `${us.toPrecision(3)} µs` : `${Math.round(us * 1e3)} ns`;
  const scaled = (value, unit) => { const k = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]].find(([, size]) => value >= size);
    return k ? `${(value / k[1]).toPrecision(3)} ${k[0]}${unit}` : `${value.toPrecision(3)} ${unit}`; };
  const kind = (row) => KINDS[row[2]][0];

  // ---- the picture

  const tops = [];
  let height = HEAD;
  for (const track of tracks) { tops.push(height); height += 16 + ROW * (track.depth + 1) + 8; }
  const picture = svg("svg", { class: "spans", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", tabindex: 0, "aria-label": "spans on their tracks: left, right, plus and minus move and zoom" });
  const about = element("div", { class: "panel", id: "about", "aria-live": "polite" }, element("p", { class: "soft", text: "Choose a span to see what it says of itself." }));

  function choose(index) {
    chosen = index;
    const row = rows[index];
    const facts = [["took", time(row[4])], ["began at", time(row[3] - whole[0])], ["track", tracks[row[0]].name], ["kind", KINDS[row[2]][1]], ...Object.entries(said[row[6]] ?? {})];
    fill(about, element("h2", { text: names[row[1]] }),
      element("table", { "aria-label": "What the span says" }, facts.map(([name, value]) => element("tr", {}, element("th", { scope: "row", text: name }), element("td", { class: "name", text: String(value) })))));
    draw();
  }

  function draw() {
    const scale = (WIDTH - LEFT) / (to - from), parts = [], last = new Map();
    const step = 10 ** Math.floor(Math.log10((to - from) / 4)), by = step * ([5, 2, 1].find((k) => (to - from) / (step * k) >= 4) ?? 1);
    for (let at = Math.ceil((from - whole[0]) / by) * by; whole[0] + at < to; at += by) {
      const x = LEFT + (whole[0] + at - from) * scale;
      parts.push(svg("line", { x1: x, x2: x, y1: HEAD - 4, y2: height, class: "axis" }), svg("text", { x: x + 3, y: 12, class: "track", text: time(at) }));
    }
    tracks.forEach((track, k) => parts.push(svg("text", { x: 2, y: tops[k] + 11, class: "track", text: track.name })));
    rows.forEach((row, index) => {
      const [track, name, , start, length, depth] = row;
      if (start + length < from || start > to) return;
      const x = Math.max(0, LEFT + (start - from) * scale), right = Math.min(WIDTH, LEFT + (start + length - from) * scale);
      const place = track * 4096 + depth;
      // What is narrower than can be seen stands for its neighbours, too.
      if (index !== chosen && right < (last.get(place) ?? -1) + LEAST) return;
      last.set(place, Math.max(right, x + LEAST));
      const y = tops[track] + 16 + depth * ROW;
      const width = Math.max(right - x, LEAST);
      parts.push(svg("rect", { x, y, width, height: ROW - 2, class: `kind-${kind(row)}${index === chosen ? " chosen" : ""}`, on: { click: () => choose(index) } },
        svg("title", { text: `${names[name]}, ${time(length)}` })));
      const room = Math.floor((width - 6) / LETTER), text = names[name];
      if (room >= 3) parts.push(svg("text", { x: x + 3, y: y + 12, class: "on", text: text.length > room ? `${text.slice(0, room - 1)}…` : text }));
    });
    fill(picture, ...parts);
  }

  function zoom(factor, middle = (from + to) / 2) {
    const width = Math.min(Math.max((to - from) * factor, 0.01), whole[1] - whole[0]);
    let left = middle - (middle - from) * (width / (to - from));
    left = Math.min(Math.max(left, whole[0]), whole[1] - width);
    [from, to] = [left, left + width];
    draw();
  }
  function move(share) { const by = (to - from) * share; const left = Math.min(Math.max(from + by, whole[0]), whole[1] - (to - from)); [from, to] = [left, left + to - from]; draw(); }
  function next(by) {
    if (!rows.length) return;
    choose(((chosen ?? (by > 0 ? -1 : rows.length)) + by + rows.length) % rows.length);
  }
  const keys = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), n: () => next(1), p: () => next(-1), 0: () => zoom(Infinity) };
  picture.addEventListener("keydown", (event) => { if (event.key in keys && !event.ctrlKey && !event.metaKey) { event.preventDefault(); keys[event.key](); } });
  picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const box = picture.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, from + (to - from) * (event.clientX - box.left) / box.width);
  }, { passive: false });
  const button = (text, label, does) => element("button", { type: "button", text, "aria-label": label, on: { click: does } });
  const present = KINDS.filter((_, k) => rows.some((row) => row[2] === k));
  const legend = element("div", { class: "row soft" }, present.map(([name, words]) => element("span", {}, element("span", { class: `swatch kind-${name}` }), words)));
  const tools = element("div", { class: "row" }, button("+", "zoom in", () => zoom(0.5)), button("−", "zoom out", () => zoom(2)), button("←", "earlier", () => move(-0.2)),
    button("→", "later", () => move(0.2)), button("all", "all of the trace", () => zoom(Infinity)), button("previous span", "previous span", () => next(-1)), button("next span", "next span", () => next(1)));
  const spans = element("div", { class: "stack" }, tools, legend, element("div", { class: "panel scroll" }, picture), about);

  // ---- what they add up to

  const sums = new Map();
  for (const row of rows) {
    const key = `${row[2]} ${row[1]}`, sum = sums.get(key) ?? { row, times: 0, total: 0, least: Infinity, most: 0 };
    sum.times += 1; sum.total += row[4]; sum.least = Math.min(sum.least, row[4]); sum.most = Math.max(sum.most, row[4]);
    sums.set(key, sum);
  }
  const heads = ["span", "kind", "times", "in all", "on average", "least", "most"];
  const line = (cells, tag = "td") => element("tr", {}, cells.map((text, k) => element(tag, { class: k > 1 ? "number" : k ? null : "name", scope: tag === "th" ? "col" : null, text })));
  const totals = element("div", { class: "panel scroll" }, element("table", { id: "totals", "aria-label": "What spans add up to" }, element("thead", {}, line(heads, "th")), element("tbody", {},
    [...sums.values()].sort((a, b) => b.total - a.total).slice(0, 500).map((sum) => line([names[sum.row[1]], KINDS[sum.row[2]][1], count(sum.times), time(sum.total),
      time(sum.total / sum.times), time(sum.least), time(sum.most)])))));

  // ---- the roofline

  function roofline() {
    if (!points.length) return element("div", { class: "panel" }, element("p", { text: data.unmeasured }));
    const W = 720, H = 420, L = 70, B = 40, xs = points.map((point) => point.intensity), ys = points.map((point) => point.rate);
    for (const roof of roofs) { xs.push(roof.operations / roof.bytes); ys.push(roof.operations); }
    const logs = (values) => [Math.floor(Math.log10(Math.min(...values)) - 0.3), Math.ceil(Math.log10(Math.max(...values)) + 0.3)];
    const [x0, x1] = logs(xs), [y0, y1] = logs(ys);
    const X = (value) => L + (Math.log10(value) - x0) / (x1 - x0) * (W - L - 20), Y = (value) => H - B - (Math.log10(value) - y0) / (y1 - y0) * (H - B - 20);
    const parts = [];
    for (let k = x0; k <= x1; k++) parts.push(svg("line", { x1: X(10 ** k), x2: X(10 ** k), y1: 20, y2: H - B, class: "axis" }), svg("text", { x: X(10 ** k), y: H - B + 16, "text-anchor": "middle", text: k < -2 || k > 3 ? `10^${k}` : String(10 ** k) }));
    for (let k = y0; k <= y1; k++) parts.push(svg("line", { x1: L, x2: W - 20, y1: Y(10 ** k), y2: Y(10 ** k), class: "axis" }), svg("text", { x: L - 6, y: Y(10 ** k) + 4, "text-anchor": "end", text: scaled(10 ** k, "") }));
    parts.push(svg("text", { x: (L + W) / 2, y: H - 6, "text-anchor": "middle", class: "soft", text: "operations a byte" }), svg("text", { x: L, y: 12, class: "soft", text: "operations a second" }));
    for (const roof of roofs) {
      const knee = roof.operations / roof.bytes, left = Math.max(10 ** x0, 10 ** y0 / roof.bytes);
      parts.push(svg("path", { class: "line", d: `M${X(left)},${Y(left * roof.bytes)} L${X(knee)},${Y(roof.operations)} L${W - 20},${Y(roof.operations)}` }));
    }
    const labelled = [];
    for (const point of points) {
      const x = X(point.intensity), y = Y(point.rate);
      // A name that would lie on another one is in the table alone.
      const free = labelled.every(([left, top]) => Math.abs(left - x) > 90 || Math.abs(top - y) > 12);
      if (free) labelled.push([x, y]);
      parts.push(svg("circle", { cx: x, cy: y, r: 5, class: point.beside ? "beside" : null }, svg("title", { text: point.name })),
        free && svg("text", { x: x + 8, y: y + 12, text: point.name.length > 32 ? `${point.name.slice(0, 31)}…` : point.name }));
    }
    const table = element("table", { id: "rates", "aria-label": "Rates of launches" }, element("thead", {}, element("tr", {}, ["program", "measured as", "times", "a launch", "memory", "arithmetic", "operations a byte"].map((text) => element("th", { scope: "col", text })))),
      element("tbody", {}, points.map((point) => element("tr", {}, element("td", { class: "name", text: point.name }), element("td", { text: point.how }), element("td", { class: "number", text: count(point.times) }),
        element("td", { class: "number", text: time(point.us) }), element("td", { class: "number", text: scaled(point.bytes_rate, "B/s") }), element("td", { class: "number", text: scaled(point.rate, "FLOP/s") }),
        element("td", { class: "number", text: point.intensity.toPrecision(3) })))));
    const lines = roofs.length ? roofs.map((roof) => `${scaled(roof.bytes, "B/s")} and ${scaled(roof.operations, "FLOP/s")}`).join("; ") : "none: --beside REPORT, a report of bench --json on the device, draws them";
    return element("div", { class: "stack" }, element("div", { class: "panel scroll" }, svg("svg", { class: "roof", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "roofline; the table below has its numbers" }, parts)),
      element("p", { class: "soft", text: `Roofs: ${lines}.` }), element("div", { class: "panel scroll" }, table));
  }

  // ---- the page

  const roof = roofline();
  const tabs = vyre.tabs("views of the trace", [["Spans", spans], ["Totals", totals], ["Roofline", roof]]);
  vyre.header(element("span", { class: "soft", text: `${count(rows.length)} spans in ${time(whole[1] - whole[0])}` }), tabs.list);
  document.getElementById("main").replaceChildren(...data.notes.map((text) => element("p", { class: "warn", text })), spans, totals, roof);
  draw();
})();
