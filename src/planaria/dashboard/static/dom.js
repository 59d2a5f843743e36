// Elements, text and numbers. Foreign text goes into the page through `plain` and textContent, and in no other way.

export const byId = (id) => document.getElementById(id);

// Make an element with a class and children: strings become text.
export function el(name, className = "", ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Write only what changed: most of a page stays as it is from one second to the next.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setClass(node, className) {
  if (node.className !== className) node.className = className;
}

const COLOURS = /\u001b\[[0-9;:]*m/g;
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
const INVISIBLE = /[\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

// Of what a progress bar drew again and again in one line the last state counts.
function lastDrawn(line) {
  let end = line.length;
  while (end && line[end - 1] === "\r") end -= 1;
  return end ? line.slice(line.lastIndexOf("\r", end - 1) + 1, end) : "";
}

// Foreign text for people: colours of a terminal go, other controls and what reorders text become visible.
export function plain(value) {
  if (value === null || value === undefined) return "";
  return String(value)
    .replace(COLOURS, "")
    .split("\n")
    .map(lastDrawn)
    .join("\n")
    .replace(CONTROLS, (one) => {
      const code = one.charCodeAt(0);
      return String.fromCharCode(code < 0x20 ? 0x2400 + code : code === 0x7f ? 0x2421 : 0xfffd);
    })
    .replace(INVISIBLE, (one) => `<U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}>`);
}

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export function number(value, digits = 1) {
  if (!isNumber(value)) return "–";
  const least = Math.abs(value) >= 1000 ? 0 : digits;
  return value.toLocaleString("en-GB", { maximumFractionDigits: least, minimumFractionDigits: least });
}

export const whole = (value) => (isNumber(value) ? Math.round(value).toLocaleString("en-GB") : "–");

// Seconds for people: 0.6 ms, 237 ms, 1.52 s, 2 min 5 s, 3 h 12 min.
export function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  if (seconds < 0.0995) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

// The time of day of a moment in milliseconds since 1970.
export const clock = (timestamp) => (isNumber(timestamp) ? CLOCK.format(timestamp) : "–");

export const plural = (count, one, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`;

export function median(values) {
  const sorted = values.filter(isNumber).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
}
