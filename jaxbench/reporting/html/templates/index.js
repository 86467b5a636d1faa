"use strict";
(() => {
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const search = document.getElementById("search");
  const filters = [...document.querySelectorAll("select[data-filter]")];
  const shown = document.getElementById("shown");

  const update = () => {
    const wanted = search.value.trim().toLowerCase();
    let count = 0;
    for (const row of rows) {
      const chosen = filters.every(
        (filter) => !filter.value || row.dataset[filter.dataset.filter] === filter.value,
      );
      row.hidden = !chosen || !row.textContent.toLowerCase().includes(wanted);
      count += row.hidden ? 0 : 1;
    }
    shown.textContent = `${count} of ${rows.length} shown`;
  };

  const value = (row, column, kind) => {
    const text = row.cells[column].dataset.value;
    if (kind === "text") return text;
    return text === "" ? null : Number(text);
  };

  const sort = (heading, column) => {
    const up = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const kind = heading.dataset.kind;
    rows.sort((one, two) => {
      const [a, b] = [value(one, column, kind), value(two, column, kind)];
      if (a === null || b === null) return (a === null) - (b === null);
      const order = kind === "text" ? a.localeCompare(b) : a - b;
      return up ? order : -order;
    });
    body.append(...rows);
  };

  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    button.addEventListener("click", () => sort(heading, column));
    heading.replaceChildren(button);
    heading.setAttribute("aria-sort", "none");
  });
  const tools = document.getElementById("tools");
  tools.hidden = false;
  tools.addEventListener("input", update);
  tools.addEventListener("submit", (event) => event.preventDefault());
  update();
})();
