// The loop of the page: ask once a second, draw what changed, say so when nobody answers.

import { drawLegend, drawRecoveries, drawStrip, drawWorld } from "./charts.js";
import { byId, clock, plain, plural, setClass, setText } from "./dom.js";
import { isPast, showEvents, showEvidence, showGaps, showNodes, showTiles, showVerdict, unreadable, verdict, withoutTheLeft } from "./panels.js";
import { RankTable } from "./ranks.js";

const EVERY_MS = 1000;
const PATIENCE_MS = 8000;
const SAVE_MS = 60000; // for a file, which may have megabytes
const MOST_MEASURES = 200;
const FEW_RANKS = 17; // whose bars are all to be seen in the table

const state = {
  runs: [],
  chosenRun: null,
  chosenRank: null,
  hasChosenStream: false,
  seen: null,
  takesOrders: false,
  wantsToken: false, // also for reading: we are not on its machine
  token: null, // typed by the user; lives here and nowhere else
  shown: new Map(), // by place on the page: the path of what is there, and its tag
  drawn: new Map(),
  lostAt: null,
};

const table = new RankTable(byId("table"), chooseRank);

class Refused extends Error {
  constructor(status, text) {
    super(text.trim() || `status ${status}`);
    this.status = status;
  }
}

function headers() {
  return state.token ? { Authorization: `Bearer ${state.token}` } : {};
}

const pathOf = (...parts) => `/api/run/${[state.chosenRun, ...parts].map(encodeURIComponent).join("/")}`;

// What belongs into each place of the page now: what is chosen may be another thing by the time an answer comes.
const PATHS = {
  runs: () => "/api/runs",
  run: () => pathOf(),
  log: () => pathOf("logs", byId("log-rank").value, byId("log-stream").value),
};

// Return the JSON that belongs into a place; null when it is there already, or something else was chosen meanwhile.
async function get(place) {
  const path = PATHS[place]();
  const shown = state.shown.get(place);
  const known = shown && shown.path === path && shown.tag ? { "If-None-Match": shown.tag } : {};
  const answer = await fetch(path, { headers: { ...headers(), ...known }, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  const content = answer.ok ? await answer.json() : answer.status === 304 ? null : await answer.text();
  if (path !== PATHS[place]() || answer.status === 304) return null;
  state.shown.delete(place);
  if (!answer.ok) throw new Refused(answer.status, content);
  state.shown.set(place, { path, tag: answer.headers.get("ETag") });
  return content;
}

async function turn() {
  try {
    await lookAtRuns();
    if (state.chosenRun !== null) {
      await lookAtRun();
      await lookAtLog();
    }
    connected();
  } catch (problem) {
    if (problem instanceof Refused) refusedBy(problem);
    else lost();
  }
  setTimeout(turn, EVERY_MS);
}

async function lookAtRuns() {
  const found = await get("runs");
  if (found === null) return;
  state.runs = found.runs;
  state.takesOrders = found.takes_orders;
  const wanted = fromAddress();
  if (!state.runs.some((run) => run.run_id === state.chosenRun)) {
    const best = state.runs.find((run) => run.run_id === wanted) || state.runs.find((run) => run.state === "running") || state.runs.find((run) => !run.why) || state.runs[0];
    if (best) chooseRun(best.run_id);
  }
  const options = state.runs.map((run) => {
    const option = document.createElement("option");
    option.value = run.run_id;
    option.textContent = `${plain(run.run_id)} (${plain(run.state)})`;
    option.selected = run.run_id === state.chosenRun;
    return option;
  });
  byId("runs").replaceChildren(...options);
  if (!state.runs.length && state.seen === null) nothingThere();
  showOrders();
}

async function lookAtRun() {
  let found;
  try {
    found = await get("run");
  } catch (problem) {
    if (problem instanceof Refused && problem.status === 404) return; // it has just gone; the list says so next
    throw problem;
  }
  if (found !== null) update(found);
}

async function lookAtLog() {
  if (!/^[0-9]{1,7}$/.test(byId("log-rank").value)) return;
  const box = byId("log");
  const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 24;
  try {
    const found = await get("log");
    if (found !== null) setText(box, plain(found.text) || plain(found.why));
  } catch (problem) {
    if (!(problem instanceof Refused) || problem.status !== 404) throw problem;
    setText(box, plain(problem.message));
  }
  if (atEnd) box.scrollTop = box.scrollHeight;
}

// Draw a picture; how long it took, layout included, is a measure of the browser's: performance.getEntriesByName("update").
function update(found) {
  const begun = performance.now();
  const seen = withoutTheLeft(found);
  state.seen = seen;
  document.title = `${plain(seen.run_id)} · Planaria`;
  const chosen = state.chosenRank ?? firstOfInterest(seen);
  showVerdict(verdict(seen));
  showTiles(seen);
  const width = byId("world").clientWidth || 900;
  const recoveries = seen.restarts.list;
  const end = seen.is_over ? 0 : seen.effective.since + seen.effective.seconds * 1000;
  when("world", [seen.world_over_time, Math.round(end / 1000), recoveries.length, width], () => drawWorld(byId("world"), seen.world_over_time, end, recoveries, width));
  when("recoveries", recoveries, () => drawRecoveries(byId("recoveries"), recoveries));
  when("events", seen.timeline, () => showEvents(seen.timeline));
  when("nodes", [seen.nodes.map((node) => ({ ...node, age_s: 0 })), canOrder()], () => showNodes(seen.nodes, canOrder() ? drain : null));
  when("evidence", seen.evidence, () => showEvidence(seen.evidence, (one, file) => pathOf("evidence", one.node, one.name, file), save));
  when("gaps", seen.gaps, () => showGaps(seen.gaps));
  setText(byId("ranks-note"), seen.ranks.length ? `${plural(seen.ranks.length, "rank")}; choose one for its log` : "no rank is known");
  table.update(seen.ranks, chosen);
  byId("strip").hidden = seen.ranks.length < FEW_RANKS || !seen.ranks.some((one) => one.rate);
  drawStrip(byId("strip"), seen.ranks, chosen);
  if (state.chosenRank === null && document.activeElement !== byId("log-rank")) byId("log-rank").value = String(chosen);
  if (!state.hasChosenStream) byId("log-stream").value = seen.outcome && seen.outcome.first_cause ? "stderr" : "stdout";
  showOrders();
  void document.body.offsetHeight;
  if (performance.getEntriesByName("update").length >= MOST_MEASURES) performance.clearMeasures("update");
  performance.measure("update", { start: begun, end: performance.now() });
}

// Draw a part again only when what it shows has changed.
function when(name, content, draw) {
  const now = JSON.stringify(content);
  if (state.drawn.get(name) === now) return;
  state.drawn.set(name, now);
  draw();
}

function firstOfInterest(seen) {
  const failed = seen.ranks.find((one) => one.state === "failed" || one.behind) || seen.ranks.find((one) => one.straggler);
  const cause = seen.outcome && seen.outcome.first_cause;
  const suspects = (seen.hang && seen.hang.ranks) || [];
  if (!cause && suspects.length) return suspects[0];
  return (cause || failed || seen.ranks[0] || { rank: 0 }).rank;
}

function fromAddress() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

function chooseRun(runId) {
  state.chosenRun = runId;
  state.chosenRank = null;
  state.seen = null;
  state.shown.delete("run");
  state.shown.delete("log");
  state.drawn.clear();
  history.replaceState(null, "", `#${encodeURIComponent(runId)}`);
  showVerdict({ mood: "", kicker: `Run ${plain(runId)}`, line: "One moment", more: "" });
  byId("nodes").replaceChildren(); // an order belongs to what is shown, and nothing of this run is yet
  setText(byId("log"), "");
  showOrders();
}

function chooseRank(rank) {
  state.chosenRank = rank;
  byId("log-rank").value = String(rank);
  if (state.seen) {
    table.update(state.seen.ranks, rank);
    drawStrip(byId("strip"), state.seen.ranks, rank);
  }
  lookAtLog().catch(() => {}); // the next turn says what is wrong
}

function connected() {
  state.wantsToken = false;
  state.lostAt = null;
  document.body.classList.remove("lost");
  const ended = state.seen && isPast(state.seen);
  setClass(byId("link"), ended ? "pill" : "pill live");
  setText(byId("link"), ended ? "ended" : "live");
}

function lost() {
  state.lostAt ??= Date.now();
  document.body.classList.add("lost");
  setClass(byId("link"), "pill lost");
  setText(byId("link"), `Connection lost at ${clock(state.lostAt)}; what is shown is old. Trying again`);
}

function refusedBy(problem) {
  setClass(byId("link"), "pill lost");
  setText(byId("link"), plain(problem.message));
  if (problem.status === 500 && state.seen === null && state.chosenRun !== null) showVerdict(unreadable(state.chosenRun, problem.message));
  if (problem.status !== 401 && problem.status !== 403) return;
  state.wantsToken = true;
  if (state.token !== null) state.shown.clear();
  state.token = null;
  if (problem.status === 401) setText(byId("link"), "the token of the run is wanted");
  showOrders();
}

function nothingThere() {
  setText(byId("verdict-kicker"), "No run");
  setText(byId("verdict-line"), "There is no run to show");
  setText(byId("verdict-more"), "Start one with planaria run; runs that ended are found in the folder of --run-dir.");
}

const canOrder = () => state.takesOrders && state.token !== null;

function showOrders() {
  const running = state.seen && !state.seen.is_over;
  byId("unlock").hidden = !(state.takesOrders || state.wantsToken);
  setText(byId("unlock"), state.token !== null ? "Lock" : state.wantsToken ? "Enter the token" : "Unlock orders");
  byId("stop").hidden = !(canOrder() && running);
}

// Ask something in the page's own dialog; return whether the answer was yes.
function ask({ title, text, yes, danger = false, wantsToken = false, problem = "" }) {
  const dialog = byId("ask");
  setText(byId("ask-title"), title);
  setText(byId("ask-text"), text);
  setText(byId("ask-problem"), problem);
  setText(byId("ask-yes"), yes);
  setClass(byId("ask-yes"), danger ? "danger" : "");
  byId("ask-token").hidden = !wantsToken;
  byId("ask-token").value = "";
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

async function unlock() {
  state.token = state.token === null ? await askForToken() : null;
  showOrders();
  if (state.seen) update(state.seen);
}

// Return a token that the server knows; null when the user gives up.
async function askForToken() {
  const question = { title: "Token of the run", text: "Whoever has it may drain nodes and stop the run. It stays in this tab's memory only.", yes: "Unlock", wantsToken: true };
  for (let problem = ""; await ask({ ...question, problem }); ) {
    const typed = byId("ask-token").value.trim();
    byId("ask-token").value = "";
    problem = typed ? await whyNot(typed) : "There is nothing to unlock with.";
    if (!problem) return typed;
  }
  byId("ask-token").value = "";
  return null;
}

// Return what the server has against a token; nothing when it is the right one.
async function whyNot(token) {
  try {
    const answer = await fetch("/api/token", { headers: { Authorization: `Bearer ${token}` }, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    return answer.ok ? "" : plain(await answer.text()).trim() || `status ${answer.status}`;
  } catch (problem) {
    return problem instanceof TypeError ? "There was no answer, or no token has such characters." : "There was no answer.";
  }
}

async function order(path, question) {
  if (!(await ask({ ...question, danger: true }))) return;
  let text;
  try {
    const answer = await fetch(path, { method: "POST", headers: headers(), signal: AbortSignal.timeout(PATIENCE_MS) });
    text = answer.headers.get("Content-Type") === "application/json" ? (await answer.json()).sentence : await answer.text();
  } catch {
    text = "There was no answer: the order may not have been taken.";
  }
  await ask({ title: "The answer", text: plain(text), yes: "Good" });
}

function drain(node) {
  const text = "Its workers are told to stop in good order, and its launcher ends. The other nodes go on.";
  return order(pathOf("drain", node.node), { title: `Drain ${plain(node.host)}?`, text, yes: "Drain it" });
}

function stop() {
  const text = "All workers on all nodes get SIGTERM, and every launcher ends with 143.";
  return order(pathOf("stop"), { title: `Stop run ${plain(state.chosenRun)}?`, text, yes: "Stop the run" });
}

// Links cannot carry the token: where one is needed, the file is fetched and saved.
async function save(event, href) {
  if (state.token === null) return;
  event.preventDefault();
  let content;
  try {
    const answer = await fetch(href, { headers: headers(), signal: AbortSignal.timeout(SAVE_MS) });
    if (!answer.ok) throw new Refused(answer.status, await answer.text());
    content = await answer.blob();
  } catch (problem) {
    const text = problem instanceof Refused ? plain(problem.message) : "There was no answer, or not all of it.";
    await ask({ title: "The file was not saved", text, yes: "Good" });
    return;
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = decodeURIComponent(href.split("/").pop());
  link.click();
  URL.revokeObjectURL(link.href);
}

byId("runs").addEventListener("change", (event) => {
  chooseRun(event.target.value);
  lookAtRun().catch(() => {}); // the next turn says what is wrong
});
byId("log-rank").addEventListener("change", (event) => chooseRank(Number(event.target.value) || 0));
byId("log-stream").addEventListener("change", () => {
  state.hasChosenStream = true;
  lookAtLog().catch(() => {});
});
byId("unlock").addEventListener("click", unlock);
byId("stop").addEventListener("click", stop);
byId("strip").addEventListener("click", (event) => {
  const ranks = state.seen ? state.seen.ranks : [];
  const step = Math.min(byId("strip").clientWidth / Math.max(ranks.length, 1), 48);
  const one = ranks[Math.floor(event.offsetX / step)];
  if (one) {
    table.showRank(one.rank);
    chooseRank(one.rank);
  }
});
addEventListener("resize", () => state.seen && update(state.seen));
drawLegend(byId("legend"));
turn();
