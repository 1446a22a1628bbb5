// What is wider than its place can be scrolled by keys in every browser: it takes the focus. What the theme leaves without a name or a rank gets one.
addEventListener("load", () => {
  for (const one of document.querySelectorAll("pre, .table-wrapper, :is(p, .output):has(> img)")) if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
  for (const one of document.querySelectorAll(".caption[role=heading]")) one.setAttribute("aria-level", "2");
  for (const [drawer, name] of [[".sidebar-drawer", "Pages"], [".toc-drawer", "On this page"]]) document.querySelector(drawer)?.setAttribute("aria-label", name);
});
