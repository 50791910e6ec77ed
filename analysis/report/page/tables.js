// Tables that sort: by their heads, which are buttons. Empty cells stay at the end, whichever way it sorts.

const SHORT = 28; // characters that are not broken into lines
const LONG = 20; // rows, of which not all are in sight
const sorting = new Map(); // by table: { column, ascending }, kept when a live page is drawn anew

const whole = new Set(); // tables of which all columns are shown

// sheet: { caption, heads, rows, numeric, notes, more, legend }; a cell is [text, value by which it sorts]. `more` are
// the columns that are shown on demand, `legend` are texts with the columns that they explain.
function drawTable(host, sheet, key = sheet.caption) {
  const drawn = JSON.stringify([sheet, sorting.get(key), whole.has(key)]);
  if (host.drawn === drawn) return; // live, most tables stay as they were
  host.drawn = drawn;
  const numeric = new Set(sheet.numeric ?? []);
  const more = new Set(whole.has(key) ? [] : sheet.more ?? []);
  const isShown = (_, column) => !more.has(column);
  const order = sorting.get(key);
  const focused = [...host.querySelectorAll("th button")].indexOf(document.activeElement);
  const scrolled = host.querySelector(".scroll");
  const left = scrolled ? scrolled.scrollLeft : 0;
  const wasChoosing = document.activeElement !== null && document.activeElement === host.querySelector(".columns");
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
      cell.append(...(text.length <= SHORT ? [text] : broken(text)));
      return cell;
    }).filter(isShown)));
  const above = host.closest("section")?.querySelector("h2")?.textContent;
  const caption = make("caption", {}, sheet.caption === above ? make("span", { class: "unseen" }, above) : sheet.caption);
  const table = make("table", {}, caption, make("thead", {}, make("tr", {}, ...heads.filter(isShown))));
  table.append(make("tbody", {}, ...rows));
  const notes = (sheet.notes ?? []).map((note) => make("li", {}, ...withCode(note)));
  const explained = (sheet.legend ?? []).filter(([, columns]) => columns.some((column) => !more.has(column)));
  const legend = explained.map(([text]) => make("li", {}, ...withCode(text)));
  const scroll = make("div", { class: sheet.rows.length > LONG ? "scroll long" : "scroll", tabindex: "0", role: "region", "aria-label": sheet.caption }, table);
  const below = [...notes, ...legend];
  host.replaceChildren(...columnChoice(host, sheet, key), scroll, ...(below.length ? [make("ul", { class: "notes" }, ...below)] : []));
  scroll.scrollLeft = left;
  if (wasChoosing) host.querySelector(".columns")?.focus({ preventScroll: true });
  if (focused >= 0) host.querySelectorAll("th button")[focused]?.focus({ preventScroll: true });
}

// The button that shows all columns, or the main ones again; nothing where all are shown anyway.
function columnChoice(host, sheet, key) {
  if (!sheet.more?.length) return [];
  const all = whole.has(key);
  const text = all ? `Show the ${sheet.heads.length - sheet.more.length} main columns` : `Show all ${sheet.heads.length} columns`;
  const change = () => {
    whole[all ? "delete" : "add"](key);
    drawTable(host, sheet, key);
    byId("spoken").textContent = `${sheet.caption}: ${host.querySelectorAll("thead th").length} columns`;
  };
  const button = make("button", { type: "button", class: "columns", "aria-label": `${text} of: ${sheet.caption}`, onclick: change }, text);
  return [make("p", { class: "columns-line" }, button)];
}

// A text in which commands stand between backticks.
function withCode(text) {
  return text.split("`").map((part, place) => (place % 2 ? make("code", {}, part) : part));
}

// A text with places between its parts where a line may end: labels are lists of key=value.
function broken(text) {
  return text.split(/(?<=,)/).flatMap((part, place) => (place ? [make("wbr"), part] : [part]));
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
