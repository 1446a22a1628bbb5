// What all pages share. Text from outside reaches the document by `element` alone, as text; nothing here takes HTML.
//
//   vyre.data                       what the page shows
//   vyre.live                       whether there is a server to ask
//   vyre.ask(name, value)           the server's answer, a promise of JSON; rejects with an Error that has its words
//   vyre.element(tag, given, ...children)   an element: `given` has `class`, `text`, `on: {click: f}`, `style: {}`, `data: {}`, and attributes;
//                                   children are elements, strings, or lists of them; null is left out
//   vyre.svg(tag, given, ...children)       the same, for drawings
//   vyre.fill(element, ...children) puts these in place of what is there
//   vyre.tabs(name, [[label, panel, shown?], ...])   a list of tabs, and their panels, with the keys that tabs have
//   vyre.header(...children)        fills the page's head: its title, then these, then the choice of light and dark
//   vyre.say(text)                  tells it to who listens (a live region)
//   vyre.count(number)              a number with thin spaces, for people
"use strict";
const vyre = (() => {
  const given = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";

  function made(node, given, children) {
    for (const [name, value] of Object.entries(given ?? {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "text") node.textContent = value;
      else if (name === "on") for (const [event, does] of Object.entries(value)) node.addEventListener(event, does);
      else if (name === "style") for (const [property, set] of Object.entries(value)) node.style.setProperty(property, set);
      else if (name === "data") Object.assign(node.dataset, value);
      else if (name === "value") node.value = value;
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return node;
  }
  const element = (tag, given, ...children) => made(document.createElement(tag), given, children);
  const svg = (tag, given, ...children) => made(document.createElementNS(SVG, tag), given, children);
  const fill = (node, ...children) => { node.replaceChildren(); return made(node, {}, children); };

  async function ask(name, value) {
    const answer = await fetch(name, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) });
    const told = await answer.text();
    if (answer.ok) return JSON.parse(told);
    let words = `the server answered ${answer.status}`;
    try { words = JSON.parse(told).error ?? words; } catch { /* it had no words */ }
    throw new Error(words);
  }

  let numbered = 0;
  function tabs(name, rows) {
    const list = element("div", { role: "tablist", "aria-label": name });
    const panels = [], buttons = [];
    const show = (chosen) => {
      buttons.forEach((button, k) => {
        button.setAttribute("aria-selected", String(k === chosen));
        button.tabIndex = k === chosen ? 0 : -1;
        panels[k].hidden = k !== chosen;
      });
      rows[chosen][2]?.();
    };
    const keys = { ArrowRight: (k) => k + 1, ArrowLeft: (k) => k - 1, Home: () => 0, End: () => rows.length - 1 };
    rows.forEach(([label, panel], k) => {
      const id = `tab-${numbered++}`;
      const button = element("button", { role: "tab", id, "aria-controls": `${id}-panel`, type: "button", text: label, on: {
        click: () => show(k),
        keydown: (event) => {
          if (!(event.key in keys)) return;
          const next = (keys[event.key](k) + rows.length) % rows.length;
          event.preventDefault();
          show(next);
          buttons[next].focus();
        },
      } });
      panel.id = `${id}-panel`;
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", id);
      buttons.push(button);
      panels.push(panel);
      list.append(button);
    });
    show(0);
    return { list, show, buttons };
  }

  const KEY = "vyre-theme";
  const stored = () => { try { return localStorage.getItem(KEY) ?? ""; } catch { return ""; } };
  function themed(theme) {
    if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
    try { localStorage.setItem(KEY, theme); } catch { /* a file's page may have no storage */ }
  }
  themed(stored());
  function header(...children) {
    const theme = element("select", { id: "theme", on: { change: () => themed(theme.value) } },
      [["", "as the system"], ["light", "light"], ["dark", "dark"]].map(([value, text]) => element("option", { value, text })));
    theme.value = stored();
    fill(document.getElementById("top"), element("h1", { text: given.title }), children, element("span", { class: "grow" }),
      element("label", { for: "theme", text: "Colours" }), theme);
  }

  const say = (text) => { document.getElementById("told").textContent = text; };
  const count = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, "\u2009");
  return { data: given.data, title: given.title, live: given.live, ask, element, svg, fill, tabs, header, say, count };
})();
