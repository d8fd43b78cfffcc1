// What each worker does over a window of time: a row per worker, a bar per step with computing, waiting and
// communicating one after the other. Where a bar stands for several steps its parts are their sums. A worker that is
// not in step waits before it computes.
"use strict";

class Gantt {
  constructor(id, label) {
    Object.assign(this, prepareFigure(id, label));
    this.stage.classList.add("tall");
    this.canvas = document.createElement("canvas");
    this.stage.append(this.canvas);
    this.groups = [];
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => (this.output.textContent = this.summary()));
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("pointerup", (event) => this.release(event));
    this.canvas.addEventListener("dblclick", () => setWindow(null));
    this.figure.addEventListener("keydown", (event) => {
      const move = {ArrowDown: 1, ArrowUp: -1}[event.key];
      if (!move) return;
      event.preventDefault();
      const count = currentRun().workers.length;
      selectWorker((state.worker + move + count + (state.worker < 0 && move < 0 ? 1 : 0)) % count);
    });
    charts.push(this);
    new ResizeObserver(() => this.follow()).observe(this.figure);
  }

  draw() {
    this.follow();
  }

  follow() {
    const run = currentRun();
    this.measure(run);
    this.group(run);
    this.paint(run);
    this.output.textContent = this.summary();
  }

  measure(run) {
    const ratio = window.devicePixelRatio || 1;
    this.names = Math.min(110, this.figure.clientWidth / 4);
    this.width = Math.max(200, this.figure.clientWidth);
    this.rowHeight = run.workers.length <= 12 ? 24 : run.workers.length <= 40 ? 16 : 11;
    this.height = run.workers.length * this.rowHeight + 22;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = this.width + "px";
    this.canvas.style.height = this.height + "px";
    this.ratio = ratio;
  }

  // The bins of the window, neighbours together if there are too many to tell apart.
  group(run) {
    const places = run.axis(state.axis);
    const [from, to] = currentWindow();
    const first = Math.max(0, lowerBound(places, from));
    const last = Math.min(run.timeline.bins - 1, lowerBound(places, to));
    const most = Math.max(40, Math.min(this.width / 3, 24000 / Math.max(1, run.workers.length)));
    const size = Math.max(1, Math.ceil((last - first + 1) / most));
    this.groups = [];
    for (let bin = first; bin <= last; bin += size) this.groups.push([bin, Math.min(bin + size - 1, last)]);
    const t = run.timeline;
    this.from = this.groups.length ? t.start[first] : 0;
    this.to = this.groups.length ? Math.max(t.end[last], this.from + 1e-9) : 1;
  }

  steps([first, last]) {
    let steps = 0;
    for (let bin = first; bin <= last; ++bin) steps += currentRun().timeline.count[bin];
    return steps;
  }

  // {start, compute, wait, exchange} in seconds, sums over the group's steps.
  parts(run, [first, last], worker) {
    const t = run.timeline;
    const parts = {start: t.start[first], compute: 0, wait: 0, exchange: 0, batch: 0, there: false};
    const number = (value) => (Number.isNaN(value) ? 0 : value);
    for (let bin = first; bin <= last; ++bin) {
      const at = worker * t.bins + bin;
      if (Number.isNaN(t.batch.mean[at])) continue;
      if (!parts.there) parts.start = t.start[bin] + number(t.offset[at]) - (run.asynchronous ? number(t.wait[at]) : 0);
      parts.there = true;
      parts.compute += number(t.compute.mean[at]) * t.count[bin];
      parts.wait += number(t.wait[at]) * t.count[bin];
      parts.exchange += number(t.exchange[at]) * t.count[bin];
      parts.batch += t.batch.mean[at] * t.count[bin];
    }
    return parts;
  }

  x(seconds) {
    return this.names + ((seconds - this.from) / (this.to - this.from)) * (this.width - this.names);
  }

  // The inverse of x.
  seconds(x) {
    return this.from + ((x - this.names) / (this.width - this.names)) * (this.to - this.from);
  }

  paint(run) {
    const ctx = this.canvas.getContext("2d");
    ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    ctx.clearRect(0, 0, this.width, this.height);
    const colours = Object.fromEntries(
        ["compute", "wait", "exchange"].map((part) => [part, themeColour(`--${part}`)]));
    const order = run.asynchronous ? ["wait", "compute", "exchange"] : ["compute", "wait", "exchange"];
    const gap = this.rowHeight > 14 ? 4 : 2;
    run.workers.forEach((unused, worker) => {
      const y = worker * this.rowHeight + gap / 2;
      ctx.globalAlpha = state.worker >= 0 && state.worker !== worker ? 0.35 : 1;
      for (const group of this.groups) {
        const parts = this.parts(run, group, worker);
        if (!parts.there) continue;
        const total = parts.compute + parts.wait + parts.exchange;
        const limit = run.timeline.end[group[1]];
        // Sums of overlapping or interrupted steps may not fit; shares always do.
        const scale = total > 0 ? Math.min(1, Math.max(0, limit - parts.start) / total) : 0;
        let at = parts.start;
        for (const part of order) {
          const [left, right] = [this.x(at), this.x(at + parts[part] * scale)];
          ctx.fillStyle = colours[part];
          if (right > left) ctx.fillRect(left, y, Math.max(right - left, 0.3), this.rowHeight - gap);
          at += parts[part] * scale;
        }
      }
    });
    ctx.globalAlpha = 1;
    this.paintLabels(ctx, run);
  }

  paintLabels(ctx, run) {
    ctx.fillStyle = themeColour("--ground");
    ctx.fillRect(0, 0, this.names, this.height);
    ctx.fillStyle = themeColour("--text");
    ctx.font = `${Math.min(12, this.rowHeight - 1)}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    run.workers.forEach((worker, place) => {
      ctx.fillText(worker.name, 0, (place + 0.5) * this.rowHeight, this.names - 6);
    });
    ctx.fillStyle = themeColour("--faint");
    ctx.font = "12px system-ui, sans-serif";
    const y = this.height - 8;
    ctx.textAlign = "left";
    ctx.fillText(formatSeconds(this.from), this.names, y);
    ctx.textAlign = "right";
    ctx.fillText(formatSeconds(this.to), this.width, y);
    ctx.textAlign = "center";
    ctx.fillText(`${formatSeconds(this.to - this.from)} shown`, (this.names + this.width) / 2, y);
    ctx.textAlign = "left";
  }

  summary() {
    if (this.groups.length === 0) return "";
    const most = Math.max(...this.groups.map((group) => this.steps(group)));
    if (most <= 1) return "Each bar is one step.";
    return `Each bar is up to ${formatNumber(most)} steps, their times added up; zoom in to see less.`;
  }

  point(event) {
    const run = currentRun();
    const box = this.canvas.getBoundingClientRect();
    const worker = Math.floor((event.clientY - box.top) / this.rowHeight);
    const seconds = this.seconds(event.clientX - box.left);
    const group = this.groups.find(([, last]) => run.timeline.end[last] >= seconds);
    if (!group || worker < 0 || worker >= run.workers.length || seconds < this.from) {
      this.output.textContent = this.summary();
      return;
    }
    const parts = this.parts(run, group, worker);
    const steps = this.steps(group);
    const place = `${binText(run, group[0])}${steps > 1 ? `, ${formatNumber(steps)} steps` : ""}`;
    const what = parts.there
      ? `${formatNumber(parts.batch)} samples, computing ${formatSeconds(parts.compute)}, ` +
        `waiting ${formatSeconds(parts.wait)}, communicating ${formatSeconds(parts.exchange)}`
      : "not there";
    this.output.textContent = `${place}, ${run.workers[worker].name}: ${what}`;
  }

  press(event) {
    this.pressed = event.clientX;
  }

  // A drag zooms, in seconds; a click chooses the worker.
  release(event) {
    if (this.pressed === undefined) return;
    const box = this.canvas.getBoundingClientRect();
    const [from, to] = [this.pressed, event.clientX].map((x) => this.seconds(x - box.left)).sort((a, b) => a - b);
    const distance = Math.abs(event.clientX - this.pressed);
    this.pressed = undefined;
    if (distance < 4) {
      const worker = Math.floor((event.clientY - box.top) / this.rowHeight);
      if (worker >= 0 && worker < currentRun().workers.length) selectWorker(worker === state.worker ? -1 : worker);
      return;
    }
    const run = currentRun();
    if (state.axis === "time") {
      setWindow([from, to]);
    } else {
      const end = run.timeline.bins - 1;
      const bins = [from, to].map((seconds) => Math.min(lowerBound(run.times, seconds), end));
      setWindow(bins.map((bin) => run.steps[bin]));
    }
  }
}
