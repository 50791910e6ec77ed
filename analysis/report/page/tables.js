// Tables that sort: by their heads, which are buttons. Empty cells stay at the end, whichever way it sorts.

const SHORT = 28; // characters that are not broken into lines
const sorting = new Map(); // by table: { column, ascending }, kept when a live page is drawn anew

// sheet: { caption, heads, rows, numeric, notes }; a cell is [text, value by which it sorts].
function drawTable(host, sheet, key = sheet.caption) {
  const drawn = JSON.stringify([sheet, sorting.get(key)]);
  if (host.drawn === drawn) return; // live, most tables stay as they were
  host.drawn = drawn;
  const numeric = new Set(sheet.numeric ?? []);
  const order = sorting.get(key);
  const focused = [...host.querySelectorAll("th button")].indexOf(document.activeElement);
  const scrolled = host.querySelector(".scroll");
  const left = scrolled ? scrolled.scrollLeft : 0;
  const heads = sheet.heads.map((head, column) => {
    const sorted = order && order.column === column ? (order.ascending ? "ascending" : "descending") : null;
    const sort = () => {
      const ascending = order && order.column === column ? !order.ascending : true;
      sorting.set(key, { column, ascending });
      drawTable(host, sheet, key);
      byId("spoken").textContent = `${sheet.caption}: sorted by ${head}, ${ascending ? "ascending" : "descending"}`;
    };
    const button = make("button", { type: "button", onclick: sort }, head, make("span", { "aria-hidden": "true" }));
    const attributes = { scope: "col", "aria-sort": sorted ?? "none", class: numeric.has(column) ? "number" : null };
    return make("th", attributes, button);
  });
  const rows = (order ? sortedRows(sheet.rows, order) : sheet.rows).map((row) =>
    make("tr", {}, ...row.map(([text, , colour], column) => {
      const look = { class: numeric.has(column) ? "number" : text.length <= SHORT ? "short" : null };
      const cell = column === 0 ? make("th", { scope: "row", ...look }) : make("td", look);
      if (colour) cell.append(swatch(colour));
      cell.append(text);
      return cell;
    })));
  const above = host.closest("section")?.querySelector("h2")?.textContent;
  const caption = make("caption", {}, sheet.caption === above ? make("span", { class: "unseen" }, above) : sheet.caption);
  const table = make("table", {}, caption, make("thead", {}, make("tr", {}, ...heads)));
  table.append(make("tbody", {}, ...rows));
  const notes = (sheet.notes ?? []).map((note) => make("li", {}, note));
  const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": sheet.caption }, table);
  host.replaceChildren(scroll, ...(notes.length ? [make("ul", { class: "notes" }, ...notes)] : []));
  scroll.scrollLeft = left;
  if (focused >= 0) host.querySelectorAll("th button")[focused]?.focus({ preventScroll: true });
}

function sortedRows(rows, { column, ascending }) {
  const compared = (one, other) => {
    if (one === null || other === null) return (one === null) - (other === null);
    const less = typeof one === "number" && typeof other === "number"
      ? one - other
      : String(one).localeCompare(String(other), "en", { numeric: true });
    return ascending ? less : -less;
  };
  return [...rows].sort((one, other) => compared(one[column][1], other[column][1]));
}

function swatch(colour) {
  const mark = make("span", { class: "swatch", "aria-hidden": "true" });
  mark.style.background = colour;
  return mark;
}
