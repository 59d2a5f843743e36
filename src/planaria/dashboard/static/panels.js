// The parts of the page that are words: what happened, key figures, events, nodes, evidence.

import { failure } from "./causes.js";
import { byId, clock, duration, el, isNumber, median, number, plain, plural, setClass, setText, whole } from "./dom.js";

const MOST_EVENTS = 200;
const MOST_NODES = 200;

const POLICIES = {
  report: "The agents tell it and change nothing (--hang-policy=report).",
  restart: "The agents start all workers again (--hang-policy=restart).",
  stop: "The agents end the run (--hang-policy=stop).",
};

const PAST = {
  gone: { line: "No agent of this run is left", more: "No end was written: they ended without --run-dir of planaria run, were killed, or do not answer any more." },
  silent: { line: "Nothing was heard of this run for long", more: "No end was written, and nobody can see from here whether its agents live." },
};

// Whether nothing more is to be expected of a run.
export const isPast = (seen) => seen.is_over || seen.state in PAST;

// Return the picture without the workers of nodes that left a run which goes on without them: a drained node is not its end.
export function withoutTheLeft(seen) {
  if (isPast(seen) || !seen.nodes.some(hasLeft)) return seen;
  const nodes = seen.nodes.map((node) => (hasLeft(node) ? { ...node, ranks: [], isLeft: true } : node));
  const left = new Set(nodes.filter(hasLeft).map((node) => node.node));
  return { ...seen, nodes, ranks: seen.ranks.filter((rank) => !left.has(rank.node)) };
}

const hasLeft = (node) => node.has_ended || node.state === "lost";

// How many nodes work, or would.
function countNodes(seen) {
  const here = seen.nodes.filter((node) => !node.isLeft);
  return here.filter((node) => node.ranks.length).length || here.length;
}

// The one sentence that a person comes for, and how it should look.
export function verdict(seen) {
  const name = `Run ${plain(seen.run_id)}`;
  const outcome = seen.outcome;
  if (outcome) {
    const mood = outcome.outcome === "done" ? "good" : outcome.outcome === "failed" ? "bad" : "calm";
    const kicker = `${name} · ${plain(outcome.outcome)}`;
    if (outcome.first_cause) return { mood, kicker, line: failure(outcome.first_cause), ...words(outcome.first_cause, `${plain(outcome.sentence)}; ${budget(seen.restarts)}`) };
    return { mood, kicker, line: sentence(plain(outcome.sentence)), more: lastRestart(seen) };
  }
  if (seen.hang) {
    const policy = POLICIES[seen.hang.policy] || "";
    const told = plain(seen.hang.sentence);
    const kicker = `${name} · hangs`;
    if (!seen.evidence.length) return { mood: "bad", kicker, line: sentence(told), more: policy }; // as of an operator, which has none
    const [said] = told.split("; evidence in "); // there are links to it below
    return { mood: "bad", kicker, line: sentence(said), more: `${policy} What every rank was doing is listed below, under Evidence.` };
  }
  const isUnheard = isPast(seen) || seen.state === "away";
  if (isUnheard && !seen.timeline.length && seen.gaps.length) return unreadable(seen.run_id, seen.gaps[0]);
  if (seen.state === "away") {
    return { mood: "warn", kicker: `${name} · away`, line: "No agent of this run answers at the moment", more: "What is shown is what was told last." };
  }
  if (isPast(seen)) {
    const { line, more } = PAST[seen.state];
    return { mood: "calm", kicker: `${name} · ${plain(seen.state)}`, line, more: `${more} ${lastRestart(seen)}` };
  }
  return { kicker: `${name} · ${plain(seen.state)}`, ...running(seen) };
}

// What is said of a run that nothing is known of but why.
export function unreadable(runId, why) {
  return { mood: "bad", kicker: `Run ${plain(runId)}`, line: "This run cannot be read", more: `${sentence(plain(why))}. The other runs are in the list above.` };
}

function running(seen) {
  const waiting = seen.nodes.find((node) => node.why_not_ready);
  const workers = plural(seen.world_size || 0, "worker");
  if (waiting) return { mood: "warn", line: `${plain(waiting.host)}: ${plain(waiting.why_not_ready)}`, more: lastRestart(seen) };
  const line = `${workers} on ${plural(countNodes(seen), "node")} at work`;
  if (!seen.stragglers.length) return { mood: "good", line, more: lastRestart(seen) };
  const slow = seen.stragglers.slice(0, 4).map((one) => `rank ${whole(one.rank)} on ${plain(one.host)} (${number(one.slower_by, 2)}×)`);
  return { mood: "warn", line, more: `Slower than the others: ${slow.join(", ")}` };
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function words(cause, ending) {
  const where = cause.where ? ` ${cause.kind === "watchdog" ? "in phase" : "at"} ${plain(cause.where)}` : "";
  const after = isNumber(cause.age_s) ? `, after ${duration(cause.age_s)} of round ${whole(cause.round)}` : "";
  return { more: `${sentence(plain(cause.meaning))}${where}${after}. ${sentence(ending)}.`, lines: cause.lines.map(plain).join("\n") };
}

function budget({ used, allowed }) {
  return isNumber(used) && isNumber(allowed) ? `${whole(used)} of ${plural(allowed, "restart")} used` : "restarts are not known";
}

function lastRestart(seen) {
  const last = seen.restarts.list[seen.restarts.list.length - 1];
  if (!last) return "";
  const told = `Last recovery at ${clock(last.began)}: ${plain(last.reason)}, back in ${duration(last.total_s)}.`;
  return last.first_cause ? `${told} ${failure(last.first_cause)}.` : told;
}

export function showVerdict(found) {
  setClass(byId("verdict"), `verdict ${found.mood}`);
  setText(byId("verdict-kicker"), found.kicker);
  setText(byId("verdict-line"), found.line);
  setText(byId("verdict-more"), found.more);
  setText(byId("verdict-lines"), found.lines || "");
  byId("verdict-lines").hidden = !found.lines;
}

export function showTiles(seen) {
  const told = seen.progress || {}; // where single ranks are not known
  const steps = [...seen.ranks.map((one) => one.step), told.step].filter(isNumber);
  const rate = median(seen.ranks.map((one) => one.rate));
  const samples = seen.ranks.map((one) => one.samples_rate).filter(isNumber);
  const total = samples.reduce((sum, one) => sum + one, 0);
  const commits = Object.entries(seen.newest_commit || {}).filter(([, commit]) => commit);
  const best = commits.length ? Math.max(...commits.map(([, commit]) => commit.step)) : null;
  const effective = seen.effective || {};
  tiles([
    ["Workers", whole(seen.world_size), `on ${plural(countNodes(seen), "node")}${seen.is_over ? ", in the last round" : ""}`],
    ["Step", steps.length ? whole(Math.max(...steps)) : "–", steps.length ? spread(seen.ranks, steps) : "no rank has told its step"],
    ["Steps per second", number(rate, 2), samples.length ? `${number(total)} samples/s together` : "median of the ranks"],
    ["Restarts", whole(seen.restarts.used), isNumber(seen.restarts.allowed) ? `of ${whole(seen.restarts.allowed)} allowed` : ""],
    ["Training time", isNumber(effective.share) ? `${(effective.share * 100).toFixed(1)} %` : "–", isNumber(effective.seconds) ? `of ${duration(effective.seconds)}` : "not known"],
    ["Newest commit", isNumber(best) ? whole(best) : "–", commits.length ? commits.map(([tier, one]) => `${plain(tier)} ${whole(one.step)}`).join(" · ") : "nothing was committed"],
  ]);
}

function spread(ranks, steps) {
  if (!ranks.length) return "as the agents push it";
  const gap = Math.max(...steps) - Math.min(...steps);
  return gap ? `the last rank is ${plural(gap, "step")} behind` : "all ranks alike";
}

function tiles(rows) {
  const box = byId("tiles");
  if (box.children.length !== rows.length) {
    box.replaceChildren(...rows.map(() => el("div", "tile", el("dt"), el("dd"), el("dd", "sub"))));
  }
  rows.forEach((row, index) => row.forEach((text, part) => setText(box.children[index].children[part], text)));
}

const MOODS = {
  "planaria.worker.exited": "bad",
  "planaria.hang": "bad",
  "planaria.stalled": "bad",
  "planaria.restart": "warn",
  "planaria.straggler": "warn",
};

export function showEvents(events) {
  const shown = events.slice(-MOST_EVENTS).reverse();
  const rows = shown.map((one) => {
    const mood = one.name === "planaria.run.ended" && /failed/.test(one.sentence) ? "bad" : MOODS[one.name] || "";
    const what = plain(one.sentence) || plain(one.name);
    return el("li", mood, el("time", "", clock(one.timestamp)), el("span", "host", plain(one.host)), el("span", "what", what));
  });
  if (events.length > MOST_EVENTS) rows.push(el("li", "empty", `… and ${whole(events.length - MOST_EVENTS)} earlier ones`));
  byId("events").replaceChildren(...(rows.length ? rows : [el("li", "empty", "Nothing has happened yet.")]));
}

export function showNodes(nodes, drain) {
  const rows = nodes.slice(0, MOST_NODES).map((node) => {
    const ranks = node.ranks.length ? `ranks ${span(node.ranks)}` : "";
    const state = node.isLeft && !["left", "lost"].includes(node.state) ? `left (${plain(node.state)})` : plain(node.state);
    const more = [state, ranks, plain(node.why_not_ready)].filter(Boolean).join(" · ");
    const row = el("li", "", el("span", "name", plain(node.host)), el("span", "what", more));
    if (drain && !node.source.startsWith("/")) {
      const button = el("button", "small danger", "Drain");
      button.type = "button";
      button.setAttribute("aria-label", `Drain ${plain(node.host)}`);
      button.addEventListener("click", () => drain(node));
      row.append(button);
    }
    return row;
  });
  if (nodes.length > MOST_NODES) rows.push(el("li", "empty", `… and ${whole(nodes.length - MOST_NODES)} more`));
  byId("nodes").replaceChildren(...(rows.length ? rows : [el("li", "empty", "No node answers.")]));
}

function span(ranks) {
  const first = Math.min(...ranks);
  const last = Math.max(...ranks);
  return first === last ? whole(first) : last - first + 1 === ranks.length ? `${whole(first)}–${whole(last)}` : ranks.map(whole).join(", ");
}

export function showEvidence(evidence, pathOf, save) {
  const rows = evidence.map((one) => {
    const row = el("li", "", el("div", "of", `${plain(one.name)} on ${plain(one.node)}`));
    for (const file of one.files) {
      const link = el("a", "", plain(file));
      link.href = pathOf(one, file);
      link.download = "";
      link.addEventListener("click", (event) => save(event, link.href));
      row.append(link);
    }
    return row;
  });
  byId("evidence").replaceChildren(...(rows.length ? rows : [el("li", "empty", "None was taken: nothing hung or had to be explained.")]));
}

export function showGaps(gaps) {
  byId("gaps").replaceChildren(...gaps.map((one) => el("li", "", plain(one))));
}
