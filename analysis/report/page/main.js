// The page as a whole: what is drawn where, colours, printing, and, live, looking again without losing the place.

const percent = (value) => `${(100 * value).toFixed(1)} %`;
const short = (value) => digits(value, 4);
const MEASURES = {
  accuracy: { title: "Accuracy", axis: "Accuracy [%]", shown: percent, scale: 100, most: 1 },
  loss: { title: "Loss", shown: short },
  perplexity: { title: "Perplexity", shown: short },
  round_s: { title: "Round time", axis: "Round time [s]", shown: seconds },
  round_bytes: { title: "Server traffic per round", axis: "Server traffic per round [MB]", shown: bytesOf, scale: 1e-6 },
  participants: { title: "Participants", shown: short },
  survivors: { title: "Updates in the sum", shown: short },
};
const ROUND = { round: { title: "rounds", axis: "Round", shown: String } };
const ACROSS = {
  time_s: { title: "time", axis: "Time [s]", shown: seconds },
  ...ROUND,
  server_bytes: { title: "server traffic", axis: "Server traffic so far [MB]", shown: bytesOf, scale: 1e-6 },
};
const METRICS = {
  strong: { title: "T, strong: multi-round privacy", axis: "T (strong) [clients]", shown: short },
  fairness: { title: "F: aggregation fairness gap", axis: "F", shown: short },
  cardinality: { title: "C: mean number of updates in a sum", axis: "C [updates]", shown: short },
};
const EPSILONS = {
  epsilon_max: { title: "Achieved epsilon, largest of a client", axis: "ε", shown: short },
  epsilon_median: { title: "Achieved epsilon, median over clients", axis: "ε", shown: short },
  planned_epsilon_max: { title: "Planned epsilon, largest of a client", axis: "ε", shown: short },
  colluding_epsilon_max: { title: "Epsilon against dishonest clients, largest of a client", axis: "ε", shown: short },
  charged: { title: "Clients that spent epsilon in the round", axis: "Clients", shown: short },
};
const COSTS = {
  duration_s: { title: "Time", axis: "Time [s]", shown: seconds },
  bytes_down: { title: "Server to clients", axis: "Server to clients [MB]", shown: bytesOf, scale: 1e-6 },
  bytes_up: { title: "Clients to server", axis: "Clients to server [MB]", shown: bytesOf, scale: 1e-6 },
};
const ABSENT = { no_targets: "There is no table", no_stages: "There is no figure" };
const THEMES = ["auto", "light", "dark"];
const THEME_NAMES = { auto: "automatic", light: "light", dark: "dark" };

// Draws what there is to draw into each place; a section shows when one of its places has something.
function draw(facts) {
  document.querySelector("h1").textContent = facts.title;
  document.title = `${facts.title} – testbed report`;
  byId("about").textContent = about(facts);
  byId("made").textContent = `Made ${facts.made} by testbed ${facts.version}${facts.command ? `: ${facts.command}` : ""}.`;
  byId("unfinished").hidden = !facts.unfinished.length;
  byId("unfinished").textContent = `Not finished: ${facts.unfinished.join(", ")}. Their numbers cover the rounds so far.`;
  const places = {
    headline: (host) => facts.headline !== null && (drawHeadline(host, facts), true),
    findings: (host) => facts.findings.length > 0 && (drawFindings(host, facts.findings), true),
    sheet: (host, name) => facts.sheets[name] && (drawTable(host, facts.sheets[name], name), true),
    reason: (host, name) => facts[name] !== "" && (host.replaceChildren(make("p", {}, ...withCode(`${ABSENT[name]}: ${facts[name]}`))), true),
    curves: (host, name) => facts[name].length > 0 && (drawCurves(host, ...curveArguments(facts, name)), true),
    bars: (host, name) => facts[name].stages.length > 0 && (drawBars(host, "Stages", facts[name], COSTS, stageOptions(facts)), true),
    explorer: (host) => facts.runs.length > 0 && (explore(host, facts), true),
    provenance: (host) => (drawProvenance(host, facts.provenance), true),
  };
  for (const section of document.querySelectorAll("main > section:not(#progress)")) {
    let something = false;
    for (const [kind, drawn] of Object.entries(places)) {
      for (const host of section.querySelectorAll(`[data-${kind}]`)) {
        const has = Boolean(drawn(host, host.dataset[kind]));
        (host.closest("details") ?? host).hidden = !has;
        something ||= has;
      }
    }
    section.hidden = !something;
  }
  const heads = [...document.querySelectorAll("main > section:not([hidden]) > h2")];
  byId("contents").replaceChildren(...heads.map((head) =>
    make("li", {}, make("a", { href: `#${head.parentElement.id}` }, head.textContent))));
}

function curveArguments(facts, name) {
  return {
    curves: ["Curves", facts.curves, MEASURES, ACROSS, facts.targets, { first: { x: "round" } }],
    metrics: ["Multi-round privacy", facts.metrics, METRICS, ROUND],
    ledger: ["Privacy ledger", facts.ledger, EPSILONS, ROUND],
  }[name];
}

function about(facts) {
  const rounds = facts.runs.reduce((sum, run) => sum + run.rounds, 0);
  const runs = `${facts.runs.length} ${facts.runs.length === 1 ? "run" : "runs"}`;
  return `${runs}, ${rounds} rounds. Times are seconds of the run's clock; traffic is the length of the real messages.`;
}

// The page begins with the time of the stages where nothing is learned; then the traffic is what is new below.
function stageOptions(facts) {
  return facts.headline?.kind === "bars" ? { first: "bytes_down" } : {};
}

const MOST_FINDINGS = 5;
const MOST_ROWS = 4;

// findings: [{ code, text, rows, keys }]; rows empty: all.
function drawFindings(host, findings) {
  const drawn = JSON.stringify(findings);
  if (host.drawn === drawn) return;
  host.drawn = drawn;
  const items = findings.map((one) => {
    const named = one.rows.slice(0, MOST_ROWS).join(", ");
    const others = one.rows.length - MOST_ROWS;
    const rows = named ? [make("strong", {}, named), others > 0 ? ` and ${others} more: ` : ": "] : [];
    const keys = one.keys.flatMap((key, place) => [place ? ", " : one.keys.length > 1 ? " Keys to change: " : " Key to change: ", make("code", {}, key)]);
    const every = others > 0 ? make("details", {}, make("summary", {}, `All ${one.rows.length} rows`), one.rows.join(", ")) : null;
    return make("li", { "data-code": one.code }, ...rows, ...withCode(sentence(one.text, !named)), ...keys, keys.length ? "." : "", every);
  });
  const list = (some) => make("ul", { class: "findings" }, ...some);
  const more = items.length > MOST_FINDINGS
    ? [make("details", {}, make("summary", {}, `${items.length - MOST_FINDINGS} more`), list(items.slice(MOST_FINDINGS)))] : [];
  host.replaceChildren(make("h3", {}, "Findings"), list(items.slice(0, MOST_FINDINGS)), ...more);
}

function sentence(text, isFirst) {
  const whole = /[.!?]$/.test(text) ? text : `${text}.`;
  return isFirst ? whole.charAt(0).toUpperCase() + whole.slice(1) : whole;
}

const NO_SEED = "This run had no seed and cannot be repeated exactly. Run its experiment again with new random numbers";

// origins: { common: [[name, value]], runs: [{ label, command, repeatable, facts }] }.
function drawProvenance(host, origins) {
  const drawn = JSON.stringify(origins);
  if (host.drawn === drawn) return;
  host.drawn = drawn;
  const list = (facts) => make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  const open = new Set([...host.querySelectorAll("details[open] > summary")].map((head) => head.textContent));
  const parts = origins.runs.map((origin, place) => {
    const where = live ? "the directory of the server" : "the folder of this page";
    const again = make("p", {}, `${origin.repeatable ? "Repeat this run" : NO_SEED}, in ${where}: `, make("code", {}, origin.command));
    const part = make("details", {}, make("summary", {}, origin.label), again, list(origin.facts));
    part.open = open.size ? open.has(origin.label) : place === 0;
    return part;
  });
  const common = origins.common.length ? [make("h3", {}, "All runs"), list(origins.common), make("h3", {}, "Each run")] : [];
  host.replaceChildren(...common, ...parts);
}

// -- colours and paper ---------------------------------------------------------------------------------------------

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = `Colours: ${THEME_NAMES[name]}`;
  try {
    localStorage.setItem("testbed-report-theme", name);
  } catch { /* a page from a file may not keep anything */ }
  redrawCharts();
}

function rememberedTheme() {
  try {
    const name = localStorage.getItem("testbed-report-theme");
    return THEMES.includes(name) ? name : "auto";
  } catch {
    return "auto";
  }
}

byId("theme").addEventListener("click", () =>
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]));
byId("print").addEventListener("click", () => window.print());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
window.addEventListener("beforeprint", redrawCharts);
window.addEventListener("afterprint", redrawCharts);

// -- live ----------------------------------------------------------------------------------------------------------

const EVERY_MS = 1500;

async function watch() {
  let shown = null;
  for (;;) {
    try {
      const standing = await (await fetched("progress")).json();
      drawProgress(standing);
      if (standing.facts !== null && standing.facts !== shown) {
        const facts = await (await fetched("facts")).json();
        shown = standing.facts;
        draw(facts);
      }
    } catch (error) {
      byId("progress-state").textContent = `The server does not answer (${error.message}); the values below are the last ones received.`;
    }
    await new Promise((resolve) => setTimeout(resolve, document.hidden ? 4 * EVERY_MS : EVERY_MS));
  }
}

function drawProgress(standing) {
  byId("progress").hidden = false;
  const { runs, points_not_started: waiting } = standing.status;
  const going = runs.filter((run) => run.state === "running").length;
  const said = `${going} of ${runs.length} runs in progress${waiting ? `, ${waiting} not started` : ""}.`;
  const trouble = standing.error ? ` ${standing.error}` : "";
  if (byId("progress-state").textContent !== said + trouble) byId("progress-state").textContent = said + trouble;
  const rows = runs.map((run) => [
    [run.label, run.label], [run.error ? `${run.state}: ${run.error}` : run.state, run.state], [`${run.rounds_done} of ${run.rounds}`, run.rounds_done / run.rounds],
    [run.accuracy === null ? "–" : percent(run.accuracy), run.accuracy], [seconds(run.now_s), run.now_s],
    [run.round_s === null ? "–" : seconds(run.round_s), run.round_s],
    [run.left_s && run.state === "running" ? seconds(run.left_s) : "–", run.left_s], [String(run.refusals), run.refusals], [String(run.crashes), run.crashes],
  ]);
  const heads = ["Run", "State", "Rounds", "Accuracy", "Clock time", "Time per round", "Time left", "Refusals", "Crashes"];
  drawTable(document.querySelector("[data-progress]"), { caption: "State of the runs", heads, rows, numeric: [2, 3, 4, 5, 6, 7, 8] });
}

setTheme(rememberedTheme());
if (live) watch();
else draw(embeddedFacts());
