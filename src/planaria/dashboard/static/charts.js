// Drawings: workers over time, the phases of recoveries, and the speed of every rank.

import { failure } from "./causes.js";
import { clock, duration, el, isNumber, plain, plural, svg, whole } from "./dom.js";

export const PHASES = ["detect", "decide", "stop", "rendezvous", "start", "ready"];

const HEIGHT = 170;
const LEFT = 44;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 24;

// Draw the number of workers as steps until `end`, with a dashed line where a recovery began.
export function drawWorld(box, points, end, recoveries, width) {
  const known = points.filter((point) => isNumber(point[0]) && isNumber(point[1]));
  if (!known.length) {
    box.replaceChildren(el("p", "empty", "No round has begun yet."));
    return;
  }
  const last = known[known.length - 1];
  if (end > last[0]) known.push([end, last[1]]);
  const first = known[0][0];
  const span = Math.max(known[known.length - 1][0] - first, 1000);
  const most = Math.max(1, ...known.map((point) => point[1]));
  const x = (time) => LEFT + ((time - first) / span) * (width - LEFT - RIGHT);
  const y = (count) => HEIGHT - BOTTOM - (count / most) * (HEIGHT - TOP - BOTTOM);
  let line = `M${x(first).toFixed(1)},${y(known[0][1]).toFixed(1)}`;
  for (const [time, count] of known.slice(1)) line += `H${x(time).toFixed(1)}V${y(count).toFixed(1)}`;
  const area = `${line}V${y(0)}H${x(first)}Z`;
  const label = `Between 0 and ${most} workers from ${clock(first)} to ${clock(first + span)}, in the end ${last[1]}`;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  for (const count of new Set([0, Math.round(most / 2), most])) {
    drawing.append(svg("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: y(count), y2: y(count) }));
    drawing.append(svg("text", { x: LEFT - 8, y: y(count) + 4, "text-anchor": "end" }, whole(count)));
  }
  for (const part of width < 600 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    const at = { x: x(first + span * part), y: HEIGHT - 5, "text-anchor": anchor };
    drawing.append(svg("text", at, clock(first + span * part)));
  }
  drawing.append(svg("path", { class: "area", d: area }), svg("path", { class: "line", d: line }));
  for (const one of recoveries) {
    if (!isNumber(one.began) || one.began < first || one.began > first + span) continue;
    const kind = one.charged ? "mark" : "mark calm";
    const mark = svg("line", { class: kind, x1: x(one.began), x2: x(one.began), y1: TOP, y2: HEIGHT - BOTTOM });
    mark.append(svg("title", {}, `${clock(one.began)} ${plain(one.reason)}: ${duration(one.total_s)}`));
    drawing.append(mark);
  }
  box.replaceChildren(drawing);
}

export function drawLegend(list) {
  list.replaceChildren(...PHASES.map((name) => el("li", "", el("i", name), name)));
}

const MOST_SHOWN = 100;

// One row for each recovery, the newest first; bars share one scale.
export function drawRecoveries(list, recoveries) {
  if (!recoveries.length) {
    list.replaceChildren(el("li", "empty", "Nothing had to be recovered."));
    return;
  }
  const shown = recoveries.slice(-MOST_SHOWN).reverse();
  const longest = Math.max(...shown.map((one) => one.total_s || 0), 0.001);
  list.replaceChildren(...shown.map((one) => recovery(one, longest)));
}

function recovery(one, longest) {
  const phases = PHASES.map((name) => [name, (one.phases || {})[name]]).filter(([, time]) => isNumber(time));
  const stack = el("div", "stack");
  stack.setAttribute("aria-hidden", "true");
  for (const [name, time] of phases) {
    const piece = el("i", name);
    piece.style.width = `${(time / longest) * 100}%`;
    piece.title = `${name} ${duration(time)}`;
    stack.append(piece);
  }
  const cost = one.charged ? "counts as a restart" : "costs no restart";
  const left = el("div", "left", el("div", "why", plain(one.reason) || "a restart"));
  left.append(el("div", "when", `${clock(one.began)} · round ${whole(one.round)} · ${cost}`));
  const again = redone(one.redone || {});
  if (again) left.append(el("div", "when", again));
  const parts = el("div", "parts", phases.map(([name, time]) => `${name} ${duration(time)}`).join(" · "));
  if (one.first_cause) parts.append(el("div", "cause", failure(one.first_cause)));
  return el("li", "", left, stack, el("div", "total", duration(one.total_s)), parts);
}

function redone({ reached, resumed }) {
  if (!isNumber(reached) || !isNumber(resumed)) return "";
  const steps = Math.max(0, reached - resumed + 1);
  return steps ? `went on at step ${whole(resumed)}; ${plural(steps, "step")} done again` : `went on at step ${whole(resumed)}; no step lost`;
}

// One bar for each rank on a canvas: a thousand of them cost a millisecond.
export function drawStrip(canvas, ranks, chosen) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
  if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  const look = getComputedStyle(canvas);
  const colour = (name) => look.getPropertyValue(name).trim();
  const [usual, warn, bad, idle, ink] = ["--accent", "--warn", "--bad", "--edge", "--ink"].map(colour);
  const most = Math.max(0.001, ...ranks.map((one) => one.rate || 0));
  const step = Math.min(width / Math.max(ranks.length, 1), 48);
  const gap = step > 6 ? 2 : step > 3 ? 1 : 0;
  ranks.forEach((one, index) => {
    const tall = Math.max(3, ((one.rate || 0) / most) * (height - 6));
    pen.fillStyle = one.behind || one.state === "failed" ? bad : one.straggler ? warn : one.rate ? usual : idle;
    pen.fillRect(index * step, height - tall, Math.max(step - gap, 0.6), tall);
    if (one.rank === chosen) {
      pen.fillStyle = ink;
      pen.fillRect(index * step, 0, Math.max(step - gap, 2), 3);
    }
  });
  return step;
}
