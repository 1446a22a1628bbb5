// The page of Programs and their code: the text at the left, beside it code, passes, a run, facts.
"use strict";
(() => {
  const { element, fill, tabs, header, say, ask, live, data } = vyre;
  const subjects = data.subjects;
  let number = 0, shown = null, edited = false, asked = 0;
  const given = { ...data.given }, options = { ...data.options };
  const hidden = new Set(["vir", "llvm"]);  // forms that are not shown at first

  // ---- the head

  const state = element("span", { class: "soft", id: "state", role: "status" });
  const choice = subjects.length > 1 ? element("select", { id: "subject", on: { change: () => choose(Number(choice.value)) } },
    subjects.map((one, k) => element("option", { value: String(k), text: one.name }))) : null;
  const option = (name, values) => {
    const select = element("select", { id: `option-${name}`, on: { change: () => { options[name] = JSON.parse(select.value); again(); } } },
      values.map(([value, text]) => element("option", { value: JSON.stringify(value), text })));
    select.value = JSON.stringify(options[name]);
    return [element("label", { for: `option-${name}`, text: name }), select];
  };
  header(choice ? [element("label", { for: "subject", text: "Program" }), choice] : null,
    live && !subjects[0].compiled ? [option("opt", [[0, "0"], [1, "1"], [2, "2"], [3, "3"]]), option("numerics", [[null, "the target's"], ["strict", "strict"], ["fast", "fast"]])] : null, state);

  // ---- panels

  const source = sourcePane(subjects[0].compiled ? "Compiled code" : "Program", live && !subjects[0].compiled ? typed : null);
  const python = element("div", { class: "stack" }), code = element("div", {}), passes = element("div", {}), run = element("div", {}), facts = element("div", {});
  let opened = "code";
  const views = tabs("Views", [["Code", code, () => open("code")], ["Passes", passes, () => open("passes")], ["Run", run, () => open("run")], ["Facts", facts, () => open("facts")]]);
  const note = element("p", { class: "warn", hidden: true });
  const old = element("p", { class: "warn", id: "old", hidden: true, text: "The text has findings: what is shown here is of the text as it last kept every rule." });
  fill(document.getElementById("main"), note, element("div", { class: "work" }, element("div", { class: "stack left" }, source.root, python),
    element("div", { class: "stack right" }, views.list, old, code, passes, run, facts)));

  const drawn = new Set();
  function open(name) {
    opened = name;
    if (name !== "run") source?.play(null);
    if (!shown || drawn.has(name)) return;
    drawn.add(name);
    ({ code: drawCode, passes: () => fill(passes, passesView(shown)), facts: () => fill(facts, factsView(shown)),
      run: () => fill(run, runView(() => source.text(), shown.facts, given, edited ? null : subjects[number].recording, (place) => source.play(place))) })[name]();
  }

  function drawCode() {
    const forms = shown.forms;
    if (!forms.length) {
      fill(code, element("p", { class: "soft", text: "There is code once the Program keeps every rule." }));
      return;
    }
    const key = (form) => `${form.id} ${form.target}`;
    const box = element("div", { class: "panes" }), old = code.querySelector(".panes");
    const at = new Map([...(old?.children ?? [])].map((pane) => [pane.getAttribute("aria-label"), pane.querySelector(".lines")?.scrollTop ?? 0]));
    const buttons = forms.map((form) => element("button", { type: "button", "aria-pressed": "false", on: { click: () => {
      const off = hidden.has(key(form)) || (hidden.has(form.id) && !hidden.has(`+${key(form)}`));
      hidden.delete(key(form));
      hidden.delete(`+${key(form)}`);
      hidden.add(off ? `+${key(form)}` : key(form));
      panes();
    } } }, form.title, element("span", { class: "target", text: ` ${form.target}` })));
    function panes() {
      const visible = forms.map((form) => !hidden.has(key(form)) && (!hidden.has(form.id) || hidden.has(`+${key(form)}`)));
      buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(visible[k])));
      fill(box, forms.filter((_, k) => visible[k]).map((form) => {
        const title = `${form.title}, ${form.target}`;
        if (!form.code) return element("section", { class: "pane panel", "aria-label": title }, element("h3", { text: title }), element("p", { class: "soft note", text: shown.partial && form.id === "sass" ? "It is being disassembled." : form.note }));
        const made = codePane(title, form.code);
        queueMicrotask(() => {
          links.add(made.pane);
          made.pane.scroller.scrollTop = at.get(title) ?? 0;
        });
        return made.root;
      }));
    }
    panes();
    fill(code, element("div", { class: "row", role: "group", "aria-label": "Code that is shown" }, buttons), box);
  }

  function show(document_) {
    source.show(document_);
    // While one types, most texts are not whole: what was made of the last one that was stays.
    old.hidden = !(edited && !document_.facts && shown?.facts);
    if (old.hidden) draw(document_);
    const errors = document_.findings.filter((one) => one.severity === "error").length;
    state.textContent = errors ? `${errors} ${errors === 1 ? "finding" : "findings"}` : "";
    say(errors ? `${errors} findings` : "checked and lowered");
    document.documentElement.dataset.ready = String(++asked);
  }

  function draw(document_) {
    shown = document_;
    const built = shown.python;
    if (built.length && !edited) {
      const made = built.map((form, k) => codePane(form.title, form.code, k ? `${form.title}, which helped` : "Python that built it"));
      fill(python, made.map((one) => one.root));
      made.forEach((one, k) => {
        links.add(one.pane);
        const first = one.lines[built[k].code.origins.findIndex((origins) => origins.length)];
        if (first) one.pane.scroller.scrollTop = first.offsetTop - one.pane.scroller.clientHeight / 3;
      });
    } else if (edited && python.firstChild) {
      fill(python, element("p", { class: "soft", text: "The text has been changed: it is no longer what the Python file builds." }));
    } else if (!built.length) {
      fill(python);
    }
    drawn.clear();
    open(opened);
  }

  // ---- what is asked for

  let timer = 0, turn = 0;
  function typed() {
    edited = true;
    clearTimeout(timer);
    timer = setTimeout(again, 250);
  }
  async function again() {
    const mine = ++turn;
    state.textContent = "lowering …";
    try {
      const wanted = edited ? { text: source.text(), options } : { number, options }, name = edited ? "document" : "subject";
      // What a disassembler takes long for comes after the rest.
      const told = await ask(name, { ...wanted, quick: true });
      if (mine !== turn || told.stale) return;
      show(told);
      await complete(told, name, wanted, mine);
    } catch (error) {
      if (mine !== turn) return;
      state.textContent = "";
      source.fail(error.message);
    }
  }
  async function complete(told, name, wanted, mine) {
    if (!told.partial) return;
    const whole = await ask(name, wanted);
    if (mine !== turn || whole.stale || !whole.facts) return;
    [shown.forms, shown.partial] = [whole.forms, false];
    if (opened === "code") drawCode(); else drawn.delete("code");
  }
  function choose(k) {
    number = k;
    edited = false;
    const subject = subjects[k];
    note.hidden = !subject.told;
    note.textContent = subject.told;
    if (!subject.document) {
      if (live) again();
      return;
    }
    show(subject.document);
    if (live) complete(subject.document, "subject", { number, options }, ++turn).catch((error) => source.fail(error.message));
  }
  choose(0);
})();
