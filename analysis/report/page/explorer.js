// The round explorer: one round of one run, a line per client, its stages from the question to the answer.
// Only the lines in sight are in the page, so 700 clients, or 100,000, scroll alike.

const LINE = 24; // pixels a client
const LOST = ["silent", "offline", "dropped", "late", "refused"];
const MARKS = { silent: "?", offline: "○", dropped: "✕", late: "◷", refused: "!" };
const at = { run: null, round: null, show: "all", order: "end", client: null, find: "" }; // round null: the last, live
const loaded = new Map(); // by run and how far it has gone: what `roundsOf` promises
const ORDERS = {
  end: "last answer, latest first", lost: "lost first", client: "client", bytes: "most bytes first", compute: "longest computing first",
};
const SHOWN = {
  all: "all clients", participants: "participants", lost: "lost clients", ...Object.fromEntries(LOST.map((name) => [name, name])),
  dishonest: "dishonest clients",
};

function explore(host, facts) {
  const place = Math.max(0, facts.runs.findIndex((run) => run.key === at.run));
  const { key, stamp } = facts.runs[place];
  at.run = key;
  const wanted = `${key} ${stamp}`;
  if (!loaded.has(wanted)) {
    for (const name of loaded.keys()) if (name.startsWith(`${key} `)) loaded.delete(name);
    loaded.set(wanted, roundsOf(place));
  }
  host.wanted = wanted;
  loaded.get(wanted).then(
    (found) => host.wanted === wanted && drawRound(host, facts, found),
    (error) => {
      loaded.delete(wanted);
      host.replaceChildren(make("p", { class: "warning" }, `The rounds cannot be shown: ${error.message}`));
    },
  );
}

function drawRound(host, facts, found) {
  const numbers = found.rounds.round ?? [];
  if (!host.querySelector(".explorer")) {
    host.replaceChildren(make("div", { class: "explorer" },
      make("div", { class: "controls" }), make("p", { class: "summary", role: "status" }), make("div", { class: "stages" }),
      make("div", { class: "timeline" }), make("div", { class: "client", role: "region", "aria-label": "The chosen client", tabindex: "-1" }),
      make("div", { class: "round-events" })));
  }
  const [controls, summary, stages, timeline, client, events] = host.firstChild.children;
  host.facts = facts;
  const again = () => explore(host, host.facts);
  const first = live ? numbers.length - 1 : 0;
  const place = numbers.includes(at.round) ? numbers.indexOf(at.round) : first;
  drawRoundControls(controls, facts, found, numbers, place, again);
  if (place < 0 || !numbers.length) {
    summary.textContent = "No round of this run has ended yet.";
    for (const part of [stages, timeline, client, events]) part.replaceChildren();
    return;
  }
  const round = roundAt(found, place);
  const name = facts.runs.find((run) => run.key === at.run).label;
  summary.textContent = `${name}, ${told(round, found)}`;
  drawTable(stages, stageSheet(round, facts), "Stages of the round");
  drawTimeline(timeline, client, round, found, facts, again);
  drawClient(client, round, found, facts);
  drawEvents(events, round);
}

function drawRoundControls(host, facts, found, numbers, place, again) {
  const step = (by) => () => ((at.round = numbers[Math.max(0, Math.min(numbers.length - 1, place + by))]), again());
  if (!host.firstChild) {
    const find = make("input", { type: "search", inputmode: "numeric", size: "8" });
    find.addEventListener("change", () => {
      at.find = find.value.trim();
      at.client = at.find === "" ? null : Number(at.find);
      again();
    });
    host.append(
      choice("Run", [], "", (value) => ((at.run = value), (at.round = null), (at.client = null), again())),
      choice("Round", [], "", (value) => ((at.round = value === "last" ? null : Number(value)), again())),
      make("button", { type: "button" }, "◀ Previous round"),
      make("button", { type: "button" }, "Next round ▶"),
      choice("Show", Object.entries(SHOWN), at.show, (value) => ((at.show = value), again())),
      choice("Order", Object.entries(ORDERS), at.order, (value) => ((at.order = value), again())),
      labelled("Find client", find),
    );
  }
  const [run, round] = host.querySelectorAll("select");
  const [before, next] = host.querySelectorAll("button");
  const named = (one) => (one.state === "finished" ? one.label : `${one.label} (${one.state})`);
  setOptions(run, facts.runs.map((one) => [one.key, named(one)]), at.run);
  const options = numbers.map((number, row) => {
    const outcome = found.rounds.outcome[row];
    return [String(number), outcome === "completed" ? String(number) : `${number} (${outcome})`];
  });
  const last = live ? [["last", "the last"]] : [];
  setOptions(round, [...last, ...options], live && at.round === null ? "last" : String(numbers[place] ?? ""));
  before.onclick = step(-1);
  next.onclick = step(1);
  before.disabled = place <= 0;
  next.disabled = place >= numbers.length - 1;
}

// Live, options are added to a list that somebody may have opened: those that are there stay.
function setOptions(select, options, value) {
  options.forEach(([name, text], place) => {
    const option = select.options[place] ?? select.appendChild(make("option"));
    if (option.value !== name) option.value = name;
    if (option.textContent !== text) option.textContent = text;
  });
  while (select.options.length > options.length) select.lastChild.remove();
  if (select.value !== value) select.value = value;
}

// One round: its facts, its asks, and by client the rows of its exchanges.
function roundAt(found, place) {
  const facts = Object.fromEntries(Object.entries(found.rounds).map(([name, values]) => [name, values[place]]));
  const { asks, column } = found;
  const chosenAsks = [];
  const clients = new Map();
  let first = 0;
  for (let ask = 0; ask < (asks.round ?? []).length; first += asks.kept[ask], ask++) {
    if (asks.round[ask] !== facts.round) continue;
    const begun = Object.fromEntries(Object.entries(asks).map(([name, values]) => [name, values[ask]]));
    chosenAsks.push(begun);
    for (let row = first; row < first + asks.kept[ask]; row++) {
      const number = column.client[row];
      if (!clients.has(number)) clients.set(number, { number, part: column.part[row], steps: [], end: 0, lost: null, bytes: 0, compute: 0 });
      const client = clients.get(number);
      const took = column.took[row] === 2 ** 32 - 1 ? null : column.took[row] * found.time_unit;
      const step = {
        stage: begun.stage, sent: begun.sent_s - facts.started_s, took,
        compute: column.compute[row] * found.time_unit, down: column.down[row] * found.bytes_unit,
        up: column.up[row] * found.bytes_unit, outcome: found.outcomes[column.outcome[row]], ask: chosenAsks.length - 1,
      };
      client.steps.push(step);
      client.bytes += step.down + step.up;
      client.compute += step.compute;
      client.end = Math.max(client.end, step.sent + (took ?? 0));
      if (step.outcome !== "answered" && !client.lost) client.lost = step;
    }
  }
  chosenAsks.forEach((ask, number) => {
    const next = chosenAsks.slice(number + 1).find((other) => other.sent_s > ask.sent_s);
    ask.ends = (next ? next.sent_s : facts.ended_s) - facts.started_s;
    ask.begins = ask.sent_s - facts.started_s;
  });
  const events = [];
  (found.events.round ?? []).forEach((number, row) => {
    if (number !== facts.round) return;
    events.push(Object.fromEntries(Object.entries(found.events).map(([name, values]) => [name, values[row]])));
  });
  return { facts, asks: chosenAsks, clients, events, duration: facts.ended_s - facts.started_s };
}

function told(round, found) {
  const { facts } = round;
  const lost = [...round.clients.values()].filter((client) => client.lost).length;
  const parts = [
    `round ${facts.round}: ${facts.outcome}${facts.reason ? ` (${facts.reason})` : ""}, ${seconds(round.duration)}.`,
    `${facts.participants ?? 0} of ${facts.population} clients took part, ${facts.survivors ?? 0} are in the sum`,
    `${bytesOf(facts.bytes_down)} from server to clients, ${bytesOf(facts.bytes_up)} from clients to server.`,
  ];
  if (lost) parts.push(`${lost} ${lost === 1 ? "client was" : "clients were"} lost.`);
  if (facts.accuracy !== null) parts.push(`Accuracy ${(100 * facts.accuracy).toFixed(1)} %.`);
  if (found.participants_only) parts.push("Only participants are listed, because the run is large.");
  if (found.every > 1) parts.push(`Clients are listed in every ${found.every}th round; a report on this run alone lists more.`);
  return parts.join(" ").replace("in the sum ", "in the sum; ");
}

function stageSheet(round, facts) {
  const lost = LOST.filter((name) => round.asks.some((ask) => ask[name]));
  const rows = round.asks.map((ask) => {
    const asked = facts.outcomes.reduce((sum, name) => sum + ask[name], 0);
    const number = (value, text = String(value)) => [text, value];
    return [
      [ask.stage, ask.stage, facts.stage_colours[ask.stage] ?? "#888888"], number(ask.begins, seconds(ask.begins)),
      number(ask.ends - ask.begins, seconds(ask.ends - ask.begins)), number(asked), number(ask.answered),
      ...lost.map((name) => number(ask[name])), number(ask.bytes_down, bytesOf(ask.bytes_down)), number(ask.bytes_up, bytesOf(ask.bytes_up)),
    ];
  });
  const heads = ["Stage", "Start", "Duration", "Clients asked", "Answers", ...lost.map((name) => name[0].toUpperCase() + name.slice(1)), "To clients", "From clients"];
  return { caption: `Stages of round ${round.facts.round}`, heads, rows, numeric: heads.map((_, place) => place).slice(1) };
}

function chosenClients(round) {
  const has = (outcome) => (client) => client.steps.some((step) => step.outcome === outcome);
  const tests = { all: () => true, participants: (one) => one.part & 1, lost: (one) => one.lost, dishonest: (one) => one.part & 4 };
  const listed = [...round.clients.values()].filter(tests[at.show] ?? has(at.show));
  const keys = {
    end: (one) => [-one.end], lost: (one) => [one.lost ? 0 : 1, -one.end], client: () => [0],
    bytes: (one) => [-one.bytes], compute: (one) => [-one.compute],
  };
  const key = new Map(listed.map((one) => [one, [...keys[at.order](one), one.number]]));
  return listed.sort((one, other) => {
    const [left, right] = [key.get(one), key.get(other)];
    const place = left.findIndex((value, number) => value !== right[number]);
    return place < 0 ? 0 : left[place] - right[place];
  });
}

function drawTimeline(host, panel, round, found, facts, again) {
  const clients = chosenClients(round);
  const before = host.querySelector(".lines-of-clients");
  const kept = { top: before?.scrollTop ?? 0, focused: before === document.activeElement && before !== null };
  const end = [...round.clients.values()].reduce((last, client) => Math.max(last, client.end), Math.max(round.duration, 1e-9));
  const axis = make("div", { class: "ticks", "aria-hidden": "true" });
  const tick = niceStep(end, host.clientWidth < 600 ? 3 : 7);
  for (let when = 0; when <= end * 1.0001; when += tick) {
    const mark = make("span", {}, tickText(when, end));
    mark.style.left = `${(100 * when) / end}%`;
    axis.append(mark);
  }
  const lines = make("div", { class: "lines-of-clients", role: "listbox", tabindex: "0", "aria-label": `Clients of round ${round.facts.round}: ${SHOWN[at.show]}, by ${ORDERS[at.order]}` });
  const space = make("div", { class: "all-lines" });
  space.style.height = `${clients.length * LINE}px`;
  lines.append(space);
  const count = `${clients.length} of ${round.clients.size} listed clients`;
  const caption = make("p", { class: "quiet" }, `${count}. Choose a client with the arrow keys to see its stages below. `, ...legendOf(round));
  host.replaceChildren(caption, make("div", { class: "ticks-head" }, make("span", {}, "Client"), axis), lines);
  const paint = () => paintLines(lines, space, clients, round, facts, end);
  lines.addEventListener("scroll", paint, { passive: true });
  const choose = (place) => {
    if (!clients.length) return;
    const next = clients[Math.max(0, Math.min(clients.length - 1, place))];
    at.client = next.number;
    const top = clients.indexOf(next) * LINE;
    if (top < lines.scrollTop) lines.scrollTop = top;
    if (top + LINE > lines.scrollTop + lines.clientHeight) lines.scrollTop = top + LINE - lines.clientHeight;
    paint();
    drawClient(panel, round, found, facts);
  };
  lines.addEventListener("click", (event) => {
    const line = event.target.closest(".client-line");
    if (line) choose(Number(line.dataset.place));
  });
  lines.addEventListener("keydown", (event) => {
    const now = clients.findIndex((client) => client.number === at.client);
    const page = Math.floor(lines.clientHeight / LINE);
    const to = { ArrowDown: now + 1, ArrowUp: now - 1, PageDown: now + page, PageUp: now - page, Home: 0, End: clients.length - 1 };
    if (!(event.key in to)) return;
    event.preventDefault();
    choose(to[event.key]);
  });
  lines.scrollTop = kept.top;
  if (at.client !== null && at.find !== "") {
    const place = clients.findIndex((client) => client.number === at.client);
    if (place >= 0) lines.scrollTop = Math.max(0, (place - 3) * LINE);
  }
  paint();
  if (kept.focused) lines.focus({ preventScroll: true });
}

function legendOf(round) {
  const seen = LOST.filter((name) => round.asks.some((ask) => ask[name]));
  return seen.map((name) => make("span", { class: `badge ${name}` }, `${MARKS[name]} ${name}`));
}

function paintLines(lines, space, clients, round, facts, end) {
  const first = Math.max(0, Math.floor(lines.scrollTop / LINE) - 8);
  const last = Math.min(clients.length, Math.ceil((lines.scrollTop + (lines.clientHeight || 480)) / LINE) + 8);
  const shown = [];
  for (let place = first; place < last; place++) {
    const client = clients[place];
    const chosen = client.number === at.client;
    const line = make("div", {
      class: "client-line", role: "option", id: `client-${client.number}`, "data-place": place, "aria-selected": String(chosen),
      "aria-posinset": place + 1, "aria-setsize": clients.length, "aria-label": spoken(client),
    });
    line.style.top = `${place * LINE}px`;
    const name = make("span", { class: "client-name" }, `${client.number}`);
    if (client.lost) name.append(make("span", { class: `badge ${client.lost.outcome}` }, `${MARKS[client.lost.outcome]} ${client.lost.outcome}`));
    const track = make("span", { class: "track" });
    for (const step of client.steps) track.append(bar(step, round, facts, end));
    line.append(name, track);
    shown.push(line);
  }
  space.replaceChildren(...shown);
  const active = clients.some((client) => client.number === at.client) ? `client-${at.client}` : null;
  if (active && document.getElementById(active)) lines.setAttribute("aria-activedescendant", active);
  else lines.removeAttribute("aria-activedescendant");
}

function bar(step, round, facts, end) {
  const until = step.took === null ? round.asks[step.ask].ends : step.sent + step.took;
  const shape = make("span", { class: step.outcome === "answered" ? "step" : `step lost ${step.outcome}` });
  shape.style.left = `${(100 * step.sent) / end}%`;
  shape.style.width = `${(100 * Math.max(0, until - step.sent)) / end}%`;
  if (step.outcome === "answered") shape.style.background = facts.stage_colours[step.stage] ?? "#888888";
  shape.title = `${step.stage}: ${step.outcome}${step.took === null ? "" : ` after ${seconds(step.took)}`}`;
  return shape;
}

function spoken(client) {
  const part = client.part & 1 ? (client.part & 2 ? "participant, in the sum" : "participant, not in the sum") : "did not take part";
  const lost = client.lost ? `; ${client.lost.outcome} in ${client.lost.stage}` : "";
  return `Client ${client.number}: ${part}${lost}; ${client.steps.length} stages, last answer after ${seconds(client.end)}`;
}

function drawClient(panel, round, found, facts) {
  const client = round.clients.get(at.client);
  if (at.client === null) return panel.replaceChildren();
  if (!client) return panel.replaceChildren(make("p", { class: "quiet" }, `Client ${at.client} is not listed in this round.`));
  const row = (found.clients.client ?? []).indexOf(client.number);
  const known = row < 0 ? [] : [
    found.clients.class[row] && found.clients.class[row] !== "nan" ? `class ${found.clients.class[row]}` : null,
    `${digits(found.clients.down_mbit_s[row])} Mbit/s down, ${digits(found.clients.up_mbit_s[row])} up`,
    `${digits(found.clients.latency_ms[row])} ms latency`, `device factor ${digits(found.clients.device_factor[row])}`,
    `${found.clients.samples[row]} samples`,
  ];
  const rows = client.steps.map((step) => [
    [step.stage, step.stage, facts.stage_colours[step.stage] ?? "#888888"], [seconds(step.sent), step.sent], [seconds(step.took), step.took],
    [seconds(step.compute), step.compute], [bytesOf(step.down), step.down], [bytesOf(step.up), step.up],
    [step.outcome, step.outcome], [why(step, client, round, facts), null],
  ]);
  const heads = ["Stage", "Question sent at", "Answer after", "Compute time", "To client", "From client", "Outcome", "Reason"];
  panel.replaceChildren(make("h3", {}, `${spoken(client)}.`), make("p", { class: "quiet" }, known.filter(Boolean).join(", ")), make("div"));
  drawTable(panel.lastChild, { caption: `Client ${client.number} in round ${round.facts.round}`, heads, rows, numeric: [1, 2, 3, 4, 5] }, "A client of a round");
}

function why(step, client, round, facts) {
  const said = round.events.filter((event) => event.party === `client:${client.number}` && event.stage === step.stage);
  if (said.length) return said.map((event) => `${event.kind}: ${event.detail}`).join("; ");
  const deadline = facts.runs.find((run) => run.key === at.run)?.deadline_s;
  return {
    answered: "", offline: "the client was offline when the server asked", dropped: "the client dropped out during the stage",
    late: `the answer arrived after the end of the stage${deadline ? ` (deadline ${deadline} s)` : ""}`,
    refused: "a check of the client failed", silent: "the stage ended before an answer",
  }[step.outcome] ?? "";
}

function drawEvents(host, round) {
  if (!round.events.length) return host.replaceChildren();
  const rows = round.events.map((event) => ["kind", "stage", "party", "detail"].map((name) => [event[name] || "–", event[name] || null]));
  drawTable(host, { caption: `Refusals, attacks and faults of round ${round.facts.round}`, heads: ["Kind", "Stage", "Party", "Detail"], rows }, "Events of the round");
}

// All ticks in the unit that suits the end.
function tickText(when, end) {
  const [size, unit] = end < 1 ? [1e-3, "ms"] : end < 300 ? [1, "s"] : end < 7200 ? [60, "min"] : [3600, "h"];
  return `${digits(when / size)} ${unit}`;
}

function niceStep(end, most) {
  const rough = end / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((step) => step * power >= rough) * power;
}
