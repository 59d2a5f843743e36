// The table of ranks: rows exist only where somebody looks, so a thousand ranks cost as much as twenty.

import { duration, el, isNumber, number, plain, setClass, setText, whole } from "./dom.js";

const ROW = 32;
const EXTRA = 4;
const COLUMNS = ["rank", "host", "state", "step", "steps/s", "samples/s", "phase", "last step", "note"];
const RIGHT = new Set(["rank", "step", "samples/s", "last step"]);

export class RankTable {
  constructor(box, choose) {
    this.box = box;
    this.choose = choose;
    this.ranks = [];
    this.rows = [];
    this.chosen = null;
    const head = el("div", "row-head", ...COLUMNS.map((name) => el("span", RIGHT.has(name) ? "num" : "", name)));
    head.setAttribute("role", "row");
    for (const cell of head.children) cell.setAttribute("role", "columnheader");
    this.space = el("div", "space");
    this.table = el("div", "", head, this.space);
    this.table.setAttribute("role", "table");
    this.table.setAttribute("aria-label", "Ranks");
    box.append(this.table);
    box.addEventListener("scroll", () => this.draw(), { passive: true });
    box.addEventListener("keydown", (event) => this.onKey(event));
  }

  update(ranks, chosen) {
    this.ranks = [...ranks].sort((a, b) => trouble(b) - trouble(a) || a.rank - b.rank);
    this.chosen = chosen;
    this.most = Math.max(0.001, ...ranks.map((one) => one.rate || 0));
    const tall = `${ranks.length * ROW}px`;
    if (this.space.style.height !== tall) this.space.style.height = tall;
    this.table.setAttribute("aria-rowcount", String(ranks.length + 1));
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - EXTRA);
    const room = Math.ceil((this.box.clientHeight || 352) / ROW) + 2 * EXTRA;
    const count = Math.min(room, this.ranks.length - first);
    while (this.rows.length < count) this.rows.push(this.makeRow());
    while (this.rows.length > Math.max(count, 0)) this.rows.pop().row.remove();
    this.rows.forEach((cells, index) => this.fill(cells, first + index));
  }

  makeRow() {
    const cells = COLUMNS.map((name) => el("span", RIGHT.has(name) ? "num" : ""));
    const value = el("b");
    const bar = el("u");
    cells[4].className = "gauge";
    cells[4].append(value, el("i", "", bar));
    for (const cell of cells) cell.setAttribute("role", "cell");
    const row = el("div", "rank", ...cells);
    row.setAttribute("role", "row");
    row.addEventListener("click", () => this.choose(Number(row.dataset.rank)));
    this.space.append(row);
    return { row, cells, value, bar };
  }

  fill({ row, cells, value, bar }, index) {
    const one = this.ranks[index];
    const top = `${index * ROW + ROW}px`;
    if (row.style.top !== top) row.style.top = top;
    row.dataset.rank = String(one.rank);
    row.setAttribute("aria-rowindex", String(index + 2));
    const mood = one.behind || one.state === "failed" ? " bad" : one.straggler ? " warn" : "";
    setClass(row, `rank${mood}${one.rank === this.chosen ? " chosen" : ""}`);
    setText(cells[0], whole(one.rank));
    setText(cells[1], plain(one.host));
    setText(cells[2], plain(one.state));
    setText(cells[3], whole(one.step));
    setText(value, number(one.rate, 2));
    const part = `scaleX(${isNumber(one.rate) ? Math.max(0, one.rate / this.most).toFixed(3) : 0})`;
    if (bar.style.transform !== part) bar.style.transform = part;
    setText(cells[5], number(one.samples_rate));
    setText(cells[6], plain(one.phase) || "–");
    setText(cells[7], duration(one.age_s));
    setText(cells[8], note(one));
  }

  onKey(event) {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move || !this.ranks.length) return;
    event.preventDefault();
    const now = this.ranks.findIndex((one) => one.rank === this.chosen);
    const next = Math.min(Math.max(now + move, 0), this.ranks.length - 1);
    this.show(next);
    this.choose(this.ranks[next].rank);
  }

  showRank(rank) {
    this.show(this.ranks.findIndex((one) => one.rank === rank));
  }

  show(index) {
    const top = index * ROW;
    const view = this.box.clientHeight - ROW;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + ROW > this.box.scrollTop + view) this.box.scrollTop = top + ROW - view;
  }
}

// Who needs a look comes first: behind or failed, then slow, then the others by rank.
const trouble = (one) => (one.behind || one.state === "failed" ? 2 : one.straggler ? 1 : 0);

function note(one) {
  if (one.behind) return "behind";
  if (one.straggler) return `${number(one.straggler, 2)}× slower`;
  return "";
}
