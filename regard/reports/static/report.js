// Sort a table by the column whose heading is pressed; the page is whole without it.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const worth = (row) => row.cells[column].dataset.worth ?? row.cells[column].textContent;
      const compare = (a, b) => {
        const [x, y] = [worth(a), worth(b)];
        const numbers = x !== "" && y !== "" && isFinite(x) && isFinite(y);
        return numbers ? x - y : x.localeCompare(y);
      };
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort((a, b) => (down ? compare(b, a) : compare(a, b))));
    });
  });
}
