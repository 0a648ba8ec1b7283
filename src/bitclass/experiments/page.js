// A click on the head of a column sorts by it; a second click turns the order round.
for (const head of document.querySelectorAll("thead th")) {
  head.querySelector("button").addEventListener("click", () => {
    const table = head.closest("table"), body = table.tBodies[0];
    const column = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.value;
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if ((x === undefined) !== (y === undefined)) return x === undefined ? 1 : -1;
      const order = x === undefined
        ? a.cells[column].textContent.localeCompare(b.cells[column].textContent)
        : x - y;
      return down ? -order : order;
    });
    body.append(...rows);
  });
}
