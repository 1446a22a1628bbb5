// What is wider than its place can be scrolled by keys in every browser: it takes the focus.
addEventListener("load", () => {
  for (const one of document.querySelectorAll("pre, .table-wrapper")) if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
});
