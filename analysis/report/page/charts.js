// Curves and bars, drawn by Plotly: hover, zoom (drag; double click: all), and a button for each series.
// Beside each stands the same as a table. Without the library (an old browser) the tables are there alone.

const LINES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const STROKES = ["", "6 4", "2 3", "6 3 2 3", "10 4", "10 3 2 3"]; // the same in a legend
const chosen = new Map(); // by chart: { y, x, hidden }, kept when a live page is drawn anew
const drawnCharts = new Map(); // by host: what draws it again, in other colours

const plotting = (async () => {
  const text = new TextDecoder().decode(await unzipped(embedded("plotting")));
  // The page's policy allows no style attributes in markup and no style sheets but its own: attributes are set
  // through the object model, and the sheet that comes with maps, of which there are none here, stays away.
  const setAttribute = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style" && this.style) this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };
  const append = document.head.appendChild;
  document.head.appendChild = (node) =>
    node.localName === "style" && node.textContent ? node : append.call(document.head, node);
  append.call(document.head, make("script", {}, text));
  delete document.head.appendChild;
  return window.Plotly;
})().catch((error) => {
  console.warn(`no curves: ${error}`);
  return null;
});

// Plotly reads a little markup in texts: names are to be read as they are.
function plain(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function look(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// The colour, towards that of the text as far as needed to be seen on the page (a contrast of 3, as WCAG asks of lines).
// Black stands for the colour of the text.
function seriesColour(colour) {
  if (colour === "#000000") return look("--text");
  const [own, page, text] = [colour, look("--page"), look("--text")].map(channels);
  for (let share = 0; share < 1; share += 0.1) {
    const mixed = own.map((value, place) => Math.round(value + share * (text[place] - value)));
    const [light, dark] = [luminance(mixed), luminance(page)].sort((one, other) => other - one);
    if ((light + 0.05) / (dark + 0.05) >= 3) return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
  }
  return look("--text");
}

function channels(colour) {
  return [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
}

function luminance(colour) {
  const [red, green, blue] = colour.map((value) => (value / 255 <= 0.03928 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function layoutOf(more) {
  const axis = { gridcolor: look("--line"), linecolor: look("--strong-line"), zeroline: false, automargin: true };
  return {
    font: { family: "system-ui, sans-serif", size: 13, color: look("--text") },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 8, r: 8, t: 30, b: 8 },
    showlegend: false,
    hoverlabel: { bgcolor: look("--raised"), bordercolor: look("--strong-line"), font: { color: look("--text") } },
    modebar: { color: look("--quiet"), activecolor: look("--text"), bgcolor: "rgba(0,0,0,0)" },
    ...more,
    xaxis: { ...axis, ...more.xaxis },
    yaxis: { ...axis, ...more.yaxis },
  };
}

const PLOT = {
  displaylogo: false,
  responsive: true,
  modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
};

const FEW_ROUNDS = 12; // each has a tick

let labels = 0;

function labelled(text, control) {
  control.id = `control-${++labels}`;
  return make("span", { class: "choice" }, make("label", { for: control.id }, text), control);
}

// A choice of one among several; `options`: [value, text].
function choice(label, options, value, changed) {
  const select = make("select", { onchange: (event) => changed(event.target.value) });
  for (const [name, text] of options) select.append(make("option", { value: name }, text));
  select.value = value;
  return labelled(label, select);
}

// series: [{ label, colour, dash, points: { NAME: [...], NAME_half: [...] } }]; measures and xs: { NAME: axis }, an
// axis { title, shown (how a value is read), scale }.
// options: figureOnly: no choice of measures and no table; first: { y, x }, the measures that are shown at first.
function drawCurves(host, title, series, measures, xs, targets = [], options = {}) {
  const has = (name) => series.some((one) => one.points[name]?.some((value) => value !== null));
  const ys = Object.keys(measures).filter(has);
  if (!ys.length) return host.replaceChildren(make("p", { class: "quiet" }, "Nothing was measured yet."));
  const state = chosen.get(title) ?? { hidden: new Set(), ...options.first };
  chosen.set(title, state);
  const isCurve = (name) => series.some((one) => one.points[name]?.filter((value) => value !== null).length > 1);
  if (!ys.includes(state.y)) state.y = ys.find(isCurve) ?? ys[0];
  if (!xs[state.x]) [state.x] = Object.keys(xs);
  let frame = host.querySelector(".curves");
  host.series = series;
  const again = () => drawCurves(host, title, host.series, measures, xs, targets, options);
  if (!frame) {
    frame = make("div", { class: "curves" });
    host.replaceChildren(make("div", { class: "controls" }), frame);
    if (!options.figureOnly) {
      host.append(asTable());
      host.lastChild.addEventListener("toggle", () => host.drawValues());
    }
  }
  drawControls(host.firstChild, title, series, state, ys.map((name) => [name, measures[name].title]), xs, again);
  host.drawValues = () => {
    if (options.figureOnly || !host.lastChild.open) return;
    drawTable(host.lastChild.lastChild, valuesOf(title, series, state, measures, xs), `${title} as a table`);
  };
  host.drawValues();
  drawnCharts.set(host, () => plotCurves(frame, title, series, state, measures, xs, targets));
  plotCurves(frame, title, series, state, measures, xs, targets);
}

function drawControls(host, title, series, state, ys, xs, again) {
  const shown = JSON.stringify([ys, state.y, state.x, [...state.hidden], series.map((one) => [one.label, one.colour])]);
  if (host.drawn === shown) return; // a list that somebody has opened stays open
  host.drawn = shown;
  const focused = host.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  const options = ys.length > 1 ? [choice("Show", ys, state.y, (value) => ((state.y = value), again()))] : [];
  if (Object.keys(xs).length > 1) {
    const names = Object.entries(xs).map(([name, axis]) => [name, axis.title]);
    options.push(choice("over", names, state.x, (value) => ((state.x = value), again())));
  }
  options.forEach((option, place) => (option.querySelector("select").dataset.focus = `choice-${place}`));
  const toggles = make("div", { class: "toggles", role: "group", "aria-label": `Curves of ${title}` });
  const every = make("button", { type: "button", "data-focus": "all" }, state.hidden.size ? "Show all" : "Hide all");
  every.addEventListener("click", () => {
    state.hidden = new Set(state.hidden.size ? [] : series.map((one) => one.label));
    again();
  });
  if (series.length > 3) toggles.append(every);
  series.forEach((one, place) => {
    const checked = !state.hidden.has(one.label);
    const box = make("input", { type: "checkbox", "data-focus": `curve-${place}`, checked });
    box.addEventListener("change", () => {
      state.hidden[box.checked ? "delete" : "add"](one.label);
      again();
    });
    toggles.append(make("label", {}, box, stroke(one), one.label));
  });
  host.replaceChildren(...options, toggles);
  if (focused) host.querySelector(`[data-focus="${focused}"]`)?.focus({ preventScroll: true });
}

function asTable() {
  return make("details", { class: "values" }, make("summary", {}, "The same as a table"), make("div"));
}

function stroke(one) {
  const [svg, line] = ["svg", "line"].map((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
  const size = { class: "stroke", width: 28, height: 8, "aria-hidden": "true" };
  const shape = { x1: 0, x2: 28, y1: 4, y2: 4, "stroke-width": 3, "stroke-dasharray": STROKES[one.dash % STROKES.length] };
  Object.entries(size).forEach(([name, value]) => svg.setAttribute(name, value));
  Object.entries({ ...shape, stroke: seriesColour(one.colour) }).forEach(([name, value]) => line.setAttribute(name, value));
  svg.append(line);
  return svg;
}

// The figure that the page begins with: one measure of all rows, without a choice of measures.
function drawHeadline(host, facts) {
  const { kind, y, x } = facts.headline;
  let figure = host.querySelector(".figure");
  if (!figure) {
    figure = make("div", { class: "figure" });
    host.replaceChildren(make("h3"), figure);
  }
  if (kind === "curves") {
    host.firstChild.textContent = `${MEASURES[y].title} over ${ACROSS[x].title}`;
    drawCurves(figure, "Results", facts.curves, { [y]: MEASURES[y] }, { [x]: ACROSS[x] }, facts.targets, { figureOnly: true });
  } else {
    host.firstChild.textContent = `${COSTS[y].title} of a completed round, by stage`;
    drawBars(figure, "Results", facts.stages, { [y]: COSTS[y] }, { figureOnly: true });
  }
}

async function plotCurves(frame, title, series, state, measures, xs, targets) {
  const Plotly = await plotting;
  if (!Plotly) return frame.replaceChildren(make("p", { class: "warning" }, "This browser draws no curves; the table has them."));
  const [y, x] = [measures[state.y], xs[state.x]];
  const traces = [];
  for (const one of series) {
    const values = one.points[state.y];
    if (!values || state.hidden.has(one.label)) continue;
    const kept = values.map((value, place) => (value === null ? -1 : place)).filter((place) => place >= 0);
    const across = kept.map((place) => one.points[state.x][place] * (x.scale ?? 1));
    const up = kept.map((place) => values[place] * (y.scale ?? 1));
    const halves = one.points[`${state.y}_half`];
    const half = kept.map((place) => (halves?.[place] ?? 0) * (y.scale ?? 1));
    const colour = seriesColour(one.colour);
    if (halves) {
      const within = (value) => Math.min((y.most ?? Infinity) * (y.scale ?? 1), Math.max((y.least ?? 0) * (y.scale ?? 1), value));
      const edge = [...up.map((value, place) => within(value + half[place])), ...up.map((value, place) => within(value - half[place])).reverse()];
      const around = { x: [...across, ...[...across].reverse()], y: edge, mode: "lines", hoverinfo: "skip" };
      traces.push({ ...around, fill: "toself", fillcolor: `${colour}${series.length > 6 ? "11" : "22"}`, line: { width: 0 } });
    }
    const interval = halves ? kept.map((place) => (halves[place] === null ? "" : ` ± ${y.shown(halves[place])}`)) : null;
    traces.push({
      x: across,
      y: up,
      text: kept.map((place, at) => plain(`${one.label}: ${y.shown(values[place])}${interval ? interval[at] : ""}`)),
      hovertemplate: "%{text}<extra></extra>",
      mode: kept.length < 60 ? "lines+markers" : "lines",
      marker: { size: 5 },
      line: { color: colour, width: 2, dash: LINES[one.dash % LINES.length] },
      name: plain(one.label),
    });
  }
  const few = state.x === "round" && traces.every((trace) => trace.x.every((round) => round <= FEW_ROUNDS));
  const goals = targets.filter((target) => target.metric === state.y);
  const layout = layoutOf({
    shapes: goals.map(({ threshold }) => {
      const height = threshold * (y.scale ?? 1);
      return { type: "line", xref: "paper", x0: 0, x1: 1, y0: height, y1: height, line: { color: look("--strong-line"), width: 1, dash: "dash" } };
    }),
    annotations: goals.map(({ threshold, label }) => ({
      text: plain(label), xref: "paper", x: 0, xanchor: "left", y: threshold * (y.scale ?? 1), yanchor: "bottom", showarrow: false,
      bgcolor: look("--page"), borderpad: 1, font: { size: 12, color: look("--quiet") },
    })),
    hovermode: "x unified",
    uirevision: `${state.y} ${state.x}`,
    height: 380,
    xaxis: { title: { text: x.axis ?? x.title }, ...(few ? { dtick: 1 } : {}) },
    yaxis: { title: { text: y.axis ?? y.title }, rangemode: "nonnegative" },
  });
  await Plotly.react(frame, traces, layout, PLOT);
  frame.setAttribute("role", "figure");
  frame.setAttribute("aria-label", `${title}: ${y.title} over ${x.title}, ${traces.length} curves; as a table below`);
}

function valuesOf(title, series, state, measures, xs) {
  const shown = series.filter((one) => one.points[state.y] && !state.hidden.has(one.label));
  const at = new Map();
  shown.forEach((one, place) => {
    one.points[state.y].forEach((value, point) => {
      if (value === null) return;
      const key = one.points.round[point];
      if (!at.has(key)) at.set(key, []);
      at.get(key)[place] = value;
    });
  });
  const cells = (values) => shown.map((_, place) => {
    const value = values[place] ?? null;
    return [value === null ? "–" : measures[state.y].shown(value), value];
  });
  const rows = [...at].sort(([one], [other]) => one - other).map(([round, values]) => [[String(round), round], ...cells(values)]);
  const heads = ["Round", ...shown.map((one) => one.label)];
  return { caption: `${title}: ${measures[state.y].title}`, heads, rows, numeric: heads.map((_, place) => place) };
}

// -- bars ----------------------------------------------------------------------------------------------------------

// stages: { rows, completed, stages, colours, COST: [row][stage] }; costs: { NAME: axis }.
// options: figureOnly: no choice of costs and no table; first: the cost that is shown at first.
function drawBars(host, title, stages, costs, options = {}) {
  const state = chosen.get(title) ?? { y: options.first ?? Object.keys(costs)[0] };
  chosen.set(title, state);
  let frame = host.querySelector(".curves");
  if (!frame) {
    frame = make("div", { class: "curves" });
    host.replaceChildren(make("div", { class: "controls" }), frame);
    if (!options.figureOnly) host.append(asTable());
  }
  host.stages = stages;
  const again = (value) => {
    state.y = value;
    drawBars(host, title, host.stages, costs, options);
  };
  const shown = JSON.stringify(stages.stages);
  if (host.firstChild.drawn !== shown) {
    host.firstChild.drawn = shown;
    const legend = make("ul", { class: "legend", "aria-label": "Stages" });
    stages.stages.forEach((name) => legend.append(make("li", {}, swatch(stages.colours[name]), name)));
    const names = Object.entries(costs).map(([name, axis]) => [name, axis.title]);
    host.firstChild.replaceChildren(...(names.length > 1 ? [choice("Show", names, state.y, again)] : []), legend);
  }
  const cost = costs[state.y];
  drawnCharts.set(host, () => plotBars(frame, stages, state, cost));
  plotBars(frame, stages, state, cost);
  if (options.figureOnly) return;
  const sums = stages[state.y].map((row) => row.reduce((sum, value) => sum + value, 0));
  const rows = stages.rows.map((label, place) => [
    [label, label],
    ...stages[state.y][place].map((value) => [cost.shown(value), value]),
    [cost.shown(sums[place]), sums[place]],
  ]);
  const heads = ["Run", ...stages.stages, "All stages"];
  const numeric = heads.map((_, place) => place).slice(1);
  drawTable(host.lastChild.lastChild, { caption: `${cost.title} of a completed round, by stage`, heads, rows, numeric }, title);
}

async function plotBars(frame, stages, state, cost) {
  const Plotly = await plotting;
  if (!Plotly) return;
  const traces = stages.stages.map((name, stage) => ({
    type: "bar",
    orientation: "h",
    x: stages[state.y].map((row) => row[stage] * (cost.scale ?? 1)),
    y: stages.rows.map((_, place) => place),
    text: stages[state.y].map((row) => plain(`${name}: ${cost.shown(row[stage])}`)),
    textposition: "none",
    hovertemplate: "%{text}<extra></extra>",
    marker: { color: stages.colours[name], line: { color: look("--strong-line"), width: 0.5 } },
    name: plain(name),
  }));
  const narrow = frame.clientWidth < 600;
  const shortened = (label) => (label.length > (narrow ? 16 : 40) ? `${label.slice(0, narrow ? 15 : 39)}…` : label);
  const layout = layoutOf({
    barmode: "stack",
    height: 90 + 34 * stages.rows.length,
    bargap: 0.3,
    annotations: stages.rows.flatMap((_, place) => (stages.completed[place] ? [] : [
      { text: "no completed round", x: 0, y: place, xanchor: "left", showarrow: false, font: { size: 12, color: look("--quiet") } },
    ])),
    xaxis: { title: { text: cost.axis ?? cost.title }, fixedrange: false },
    yaxis: {
      autorange: "reversed",
      tickmode: "array",
      tickvals: stages.rows.map((_, place) => place),
      ticktext: stages.rows.map((label) => plain(shortened(label))),
      showgrid: false,
    },
  });
  await Plotly.react(frame, traces, layout, PLOT);
  frame.setAttribute("role", "figure");
  frame.setAttribute("aria-label", `${cost.title} of a completed round by stage, as bars; as a table below`);
}

function redrawCharts() {
  for (const draw of drawnCharts.values()) draw();
}
