// Where the page's data come from: this file itself, or, live, the server that it came from.

const live = document.body.dataset.live === "yes";
const byId = (id) => document.getElementById(id);

// An element with attributes, properties where it has them (disabled, value), and children; text stays text.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") element[name] = value;
    else if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

async function unzipped(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function embedded(id) {
  return Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
}

function embeddedFacts() {
  return JSON.parse(byId("facts").textContent);
}

async function fetched(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
  return answer;
}

// The explorer's data of a run (see analysis/report/rounds.py): a header, and columns as typed arrays.
async function roundsOf(place) {
  const packed = live ? await (await fetched(`rounds/${place}`)).arrayBuffer() : embedded(`rounds-${place}`);
  const bytes = new Uint8Array(await unzipped(packed));
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const found = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const columns = {};
  let at = 4 + length;
  for (const [name, size] of Object.entries(found.columns)) {
    const values = new Uint32Array(found.rows);
    for (let plane = 0; plane < size; plane++, at += found.rows) {
      for (let row = 0; row < found.rows; row++) values[row] += bytes[at + row] * 2 ** (8 * plane);
    }
    columns[name] = values;
  }
  for (let row = 1; row < found.rows; row++) columns.client[row] += columns.client[row - 1];
  return { ...found, ...{ column: columns } };
}

// -- numbers -------------------------------------------------------------------------------------------------------

function digits(value, most = 3) {
  return Number(value.toPrecision(most)).toLocaleString("en-GB", { maximumFractionDigits: 12, useGrouping: false });
}

function seconds(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0 s";
  if (value < 1) return `${digits(1000 * value)} ms`;
  if (value < 120) return `${digits(value, 4)} s`;
  return value < 7200 ? `${digits(value / 60)} min` : `${digits(value / 3600)} h`;
}

function bytesOf(value) {
  if (value === null || value === undefined) return "–";
  const power = value < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(value) / 3));
  return `${power ? digits(value / 1000 ** power) : value} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}
