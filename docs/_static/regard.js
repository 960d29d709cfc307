// What scrolls sideways can be reached by the keyboard.
const reach = () => {
  for (const box of document.querySelectorAll("pre, .table-wrapper, .cell_output")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
};
addEventListener("load", reach);
addEventListener("resize", reach);
