// Sort a table by a column when its head is pressed; cells without a value stay last.
const value = cell => {
  const text = cell.textContent.trim().replaceAll("−", "-").replaceAll(",", "");
  const number = /^T?([+-]?\d[\d.]*(?:e[+-]?\d+)?)(?![\w-])/.exec(text);
  return number ? Number(number[1]) : text === "–" ? "" : text;
};
const sort = (table, head, place) => {
  const body = table.tBodies[0];
  const rows = [...body.rows].map(row => [row, value(row.cells[place])]);
  const numbers = rows.some(([, key]) => typeof key === "number");
  const turned = {ascending: "descending", descending: "ascending"}[head.ariaSort];
  const next = turned || (numbers ? "descending" : "ascending");
  const sign = next === "ascending" ? 1 : -1;
  rows.sort(([, a], [, b]) => a === "" || b === "" ? (a === "") - (b === "")
    : sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))));
  for (const other of table.tHead.rows[0].cells) other.ariaSort = other === head ? next : null;
  body.append(...rows.map(([row]) => row));
};
for (const table of document.querySelectorAll("table")) [...table.tHead.rows[0].cells].forEach((head, place) => {
  const button = document.createElement("button");
  button.append(...head.childNodes);
  button.onclick = () => sort(table, head, place);
  head.append(button);
});
