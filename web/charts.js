// The plots, and what they share: the runs, the choice of what is shown, and the window of steps or time.
"use strict";

const state = {
  runs: [],
  hidden: new Set(),  // runs that are not drawn, by number
  run: 0,             // the one whose workers are shown
  worker: -1,         // the one that stands out; -1: none
  axis: "steps",
  stacked: true,
  window: null,       // [from, to] on the axis; null: all
};

const charts = [];  // whatever has draw() and follow()
const kHeight = 260;
const kAxisLabels = {steps: "step", time: "seconds of training"};
// There is no half step and no half sample.
const kWholeTicks = Array.from({length: 48}, (unused, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3));

const currentRun = () => state.runs[state.run];
const notePlace = (note) => (state.axis === "steps" ? note.step : note.seconds);
const shownRuns = () => state.runs.map((run, number) => number).filter((number) => !state.hidden.has(number));

// From the first to the last place on the axis; the last evaluation comes after the last step.
function wholeAxis() {
  let [low, high] = [Infinity, -Infinity];
  for (const number of new Set([...shownRuns(), state.run])) {
    const places = state.runs[number].axis(state.axis);
    if (places.length === 0) continue;
    low = Math.min(low, places[0]);
    const evaluation = state.runs[number].evaluations.kept.at(-1);
    high = Math.max(high, places[places.length - 1], evaluation ? notePlace(evaluation) : -Infinity);
  }
  if (!(low <= high)) return [0, 1];
  return low === high ? [low, low + 1] : [low, high];
}

const currentWindow = () => state.window || wholeAxis();

function setWindow(window) {
  if (window !== null) {
    const [low, high] = wholeAxis();
    const least = (high - low) * 1e-7;
    const from = Math.max(low, Math.min(...window));
    const to = Math.min(high, Math.max(...window));
    if (!(to - from > least)) return;
    window = from <= low && to >= high ? null : [from, to];
  }
  state.window = window;
  charts.forEach((chart) => chart.follow());
  showWindow();
}

function moveWindow(share) {
  const [from, to] = currentWindow();
  const [low, high] = wholeAxis();
  const shift = Math.max(low - from, Math.min(high - to, share * (to - from)));
  setWindow([from + shift, to + shift]);
}

function zoomWindow(factor) {
  const [from, to] = currentWindow();
  const middle = (from + to) / 2;
  setWindow([middle - (middle - from) * factor, middle + (to - middle) * factor]);
}

// The same bins on the other axis.
function setAxis(axis) {
  const run = currentRun();
  const places = run.axis(state.axis);
  let window = null;
  if (state.window !== null && places.length > 0) {
    const end = places.length - 1;
    const bins = state.window.map((place) => Math.min(lowerBound(places, place), end));
    window = bins.map((bin) => run.axis(axis)[bin]);
  }
  state.axis = axis;
  state.window = null;
  drawAll();
  if (window !== null) setWindow(window);
}

function drawAll() {
  charts.forEach((chart) => chart.draw());
  showWindow();
}

const kKeys = {
  ArrowLeft: () => moveWindow(-0.2),
  ArrowRight: () => moveWindow(0.2),
  "+": () => zoomWindow(0.5),
  "=": () => zoomWindow(0.5),
  "-": () => zoomWindow(2),
  0: () => setWindow(null),
  Home: () => setWindow(null),
};

// A figure that the keyboard reaches, with a stage for the drawing and a line for what the pointer is at.
function prepareFigure(id, label) {
  const figure = document.getElementById(id);
  const stage = document.createElement("div");
  stage.className = "stage";
  const output = document.createElement("output");
  figure.append(stage, output);
  figure.tabIndex = 0;
  figure.setAttribute("role", "group");
  figure.setAttribute("aria-label", label);
  figure.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in kKeys)) return;
    event.preventDefault();
    kKeys[event.key]();
  });
  return {figure, stage, output};
}

// Lines over the axis. `describe` gives {series, bands, data, key}: as long as `key` is the same, only data changes.
class Chart {
  constructor(id, label, describe, options = {}) {
    Object.assign(this, prepareFigure(id, label));
    this.describe = describe;
    this.options = options;
    this.key = null;
    charts.push(this);
    new ResizeObserver(() => this.resize()).observe(this.figure);
  }

  size() {
    return {width: Math.max(200, this.figure.clientWidth), height: kHeight};
  }

  resize() {
    if (this.plot && this.size().width !== this.plot.width) this.plot.setSize(this.size());
  }

  draw() {
    const what = this.describe();
    what.key += state.axis;
    this.readout = what.readout;
    this.figure.parentElement.hidden = what.data.length < 2;
    if (what.data.length < 2) return;
    if (this.plot && this.key === what.key) {
      this.plot.setData(what.data, false);
    } else {
      if (this.plot) this.plot.destroy();
      this.key = what.key;
      this.plot = new uPlot(this.plotOptions(what), what.data, this.stage);
    }
    this.follow();
  }

  follow() {
    if (!this.plot) return;
    const [min, max] = this.options.free ? this.options.free() : currentWindow();
    this.plot.setScale("x", {min, max});
  }

  plotOptions(what) {
    const axis = (more) => ({
      stroke: () => themeColour("--faint"),
      grid: {stroke: () => themeColour("--grid"), width: 1},
      ticks: {stroke: () => themeColour("--grid"), width: 1},
      values: (plot, ticks) => ticks.map(formatTick),
      font: "12px system-ui, sans-serif",
      ...more,
    });
    return {
      ...this.size(),
      legend: {show: false},
      cursor: {
        drag: {x: !this.options.free, y: false, setScale: false},
        points: {size: 7},
        bind: {dblclick: () => () => setWindow(null)},
      },
      scales: {x: {time: false}, y: {range: this.options.range || rangeFromZero}},
      axes: [
        axis({size: 30, label: this.options.label || kAxisLabels[state.axis], labelSize: 16, labelGap: -2,
              labelFont: "12px system-ui, sans-serif",
              incrs: this.options.free || state.axis === "steps" ? kWholeTicks : undefined}),
        axis({size: 62, ...this.options.axis}),
      ],
      series: [{}, ...what.series],
      bands: what.bands || [],
      hooks: {
        setSelect: [(plot) => this.select(plot)],
        setCursor: [(plot) => this.point(plot)],
        draw: [(plot) => this.options.paint && this.options.paint(plot)],
      },
    };
  }

  select(plot) {
    if (plot.select.width < 3) return;
    const from = plot.posToVal(plot.select.left, "x");
    const to = plot.posToVal(plot.select.left + plot.select.width, "x");
    plot.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
    setWindow([from, to]);
  }

  point(plot) {
    const {idx, left} = plot.cursor;
    const there = left >= 0 && idx !== null && idx !== undefined;
    this.output.textContent = there && this.readout ? this.readout(idx, plot) : "";
  }
}

function rangeFromZero(plot, low, high) {
  if (!isNumber(high)) return [0, 1];
  return [Math.min(0, low), high > 0 ? high * 1.05 : 1];
}

function rangeUpToOne(plot, low) {
  return [isNumber(low) ? Math.min(0.9, Math.floor(low * 10) / 10) : 0, 1.02];
}

function rangeAround(plot, low, high) {
  if (!isNumber(low) || !isNumber(high)) return [0, 1];
  const margin = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
  return [low - margin, high + margin];
}

const binText = (run, bin) => {
  const t = run.timeline;
  const steps = t.count[bin] > 1
    ? `steps ${formatNumber(t.firstStep[bin])} to ${formatNumber(t.lastStep[bin])}`
    : `step ${formatNumber(t.firstStep[bin])}`;
  return `${steps} at ${formatSeconds(t.start[bin])}`;
};

// How strongly a worker's line is drawn when one of them stands out.
function workerStroke(worker) {
  const count = currentRun().workers.length;
  const faint = state.worker >= 0 && state.worker !== worker;
  return {
    stroke: () => colourOf(worker, count),
    alpha: faint ? 0.35 : 1,
    width: state.worker === worker ? 2.5 : 1.5,
    dash: dashOf(worker, count),
    points: {show: false},
    spanGaps: false,
  };
}

function bandOf(run, spread, worker, series, data, bands) {
  if (run.timeline.exact || worker < 0) return;
  const colour = () => colourOf(worker, run.workers.length);
  const edge = {stroke: colour, width: 0.5, points: {show: false}};
  data.push(run.row(spread.high, worker), run.row(spread.low, worker));
  series.push(edge, {...edge});
  bands.push({series: [series.length - 1, series.length], fill: () => withAlpha(colour(), 0.18)});
}

function withAlpha(colour, alpha) {
  const numbers = colour.startsWith("#")
    ? [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16))
    : colour.match(/\d+/g).slice(0, 3);
  return `rgba(${numbers.join(",")},${alpha})`;
}

function workerReadout(run, spread, format) {
  return (bin) => {
    const show = (worker) => {
      const at = worker * run.timeline.bins + bin;
      const [low, mean, high] = [spread.low[at], spread.mean[at], spread.high[at]];
      if (!isNumber(mean)) return null;
      const range = low < high ? ` (${format(low)} to ${format(high)})` : "";
      return `${run.workers[worker].name}: ${format(mean)}${range}`;
    };
    const chosen = state.worker >= 0 ? [state.worker] : run.workers.map((unused, worker) => worker);
    const texts = chosen.map(show).filter((text) => text !== null);
    const rest = texts.length > 8 ? `, and ${texts.length - 8} more` : "";
    return `${binText(run, bin)}: ${texts.slice(0, 8).join(", ")}${rest}`;
  };
}

function describeLines(spread, format) {
  const run = currentRun();
  const data = [run.axis(state.axis)];
  const series = [];
  const bands = [];
  run.workers.forEach((unused, worker) => {
    data.push(run.row(spread.mean, worker));
    series.push(workerStroke(worker));
  });
  bandOf(run, spread, run.workers.length === 1 ? 0 : state.worker, series, data, bands);
  const key = ["lines", state.run, state.worker, series.length, darkness.matches].join();
  return {data, series, bands, key, readout: workerReadout(run, spread, format)};
}

// Each worker's area stands on those of the workers before it.
function describeStack(spread, format) {
  const run = currentRun();
  const count = run.workers.length;
  const data = [run.axis(state.axis)];
  const series = [];
  const bands = [];
  let below = new Array(run.timeline.bins).fill(0);
  run.workers.forEach((unused, worker) => {
    const own = run.row(spread.mean, worker);
    const top = below.map((value, bin) => value + (own[bin] || 0));
    const faint = state.worker >= 0 && state.worker !== worker;
    const fill = () => withAlpha(colourOf(worker, count), faint ? 0.2 : 0.75);
    data.push(top);
    series.push({stroke: () => themeColour("--ground"), width: count > 32 ? 0 : 0.7, points: {show: false},
                 fill: worker === 0 ? fill : undefined});
    if (worker > 0) bands.push({series: [worker + 1, worker], fill});
    below = top;
  });
  const key = ["stack", state.run, state.worker, count, darkness.matches].join();
  return {data, series, bands, key, readout: workerReadout(run, spread, format)};
}

// One line per shown run. The runs have places of their own on the axis, so their columns are joined into one table.
function describeRuns(values, format) {
  const numbers = shownRuns().filter((number) => {
    const points = values(state.runs[number]);
    return points.y.some((value) => value !== null);
  });
  if (numbers.length === 0) return {data: [], series: [], key: ""};
  const tables = numbers.map((number) => {
    const points = values(state.runs[number]);
    return points.low ? [points.x, points.y, points.high, points.low] : [points.x, points.y];
  });
  const data = tables.length > 1 ? uPlot.join(tables.map(ascending)) : tables[0];
  const series = [];
  const bands = [];
  numbers.forEach((number, place) => {
    const colour = () => colourOf(number, state.runs.length);
    const points = {show: tables[place][0].length < 60, size: 5, fill: colour, stroke: colour};
    series.push({stroke: colour, width: number === state.run ? 2 : 1.3, dash: dashOf(number, state.runs.length),
                 points, spanGaps: true});
    if (tables[place].length > 2) {
      const edge = {stroke: colour, width: 0.4, points: {show: false}, spanGaps: true};
      series.push(edge, {...edge});
      bands.push({series: [series.length - 1, series.length], fill: () => withAlpha(colour(), 0.15)});
    }
  });
  const readout = (place, plot) => readRuns(numbers, values, format, plot.posToVal(plot.cursor.left, "x"));
  const few = tables.map((table) => table[0].length < 60);
  const key = ["runs", numbers.join("-"), state.run, series.length, few, darkness.matches].join();
  return {data, series, bands, key, readout};
}

function readRuns(numbers, values, format, place) {
  const texts = numbers.map((number) => {
    const {x, y} = values(state.runs[number]);
    let at = Math.min(lowerBound(x, place), x.length - 1);
    if (at > 0 && place - x[at - 1] < x[at] - place) --at;
    return `${state.runs[number].name}: ${format(y[at])}`;
  });
  const axis = state.axis === "steps" ? `step ${formatNumber(place)}` : formatSeconds(place);
  const mark = nearestMark(place);
  return `${axis}: ${texts.join(", ")}${mark ? ` · ${noteText(mark)}` : ""}`;
}

// uPlot's join wants every place once.
function ascending(table) {
  const keep = table[0].map((place, i) => i === 0 || place > table[0][i - 1]);
  return table.map((column) => column.filter((unused, i) => keep[i]));
}

function spreadOf(choose) {
  return (run) => {
    const spread = choose(run);
    const points = {x: run.axis(state.axis), y: plain(spread.mean)};
    if (!run.timeline.exact) Object.assign(points, {low: plain(spread.low), high: plain(spread.high)});
    return points;
  };
}

// A single one is in the table, and no line.
function evaluationsOf(field) {
  return (run) => {
    const kept = run.evaluations.kept;
    return {x: kept.map(notePlace),
            y: kept.map((e) => (kept.length > 1 && isNumber(e[field]) ? e[field] : null))};
  };
}

// What deserves a mark: every event, and decisions after a change of speed or roster.
const kNotable = new Set(["speed-changed", "roster-changed"]);
const kGlyphs = new Map(Object.entries({
  speed: "S", "speed-changed": "s", join: "J", "roster-changed": "r", death: "D", kill: "D", evicted: "E",
  "out-of-memory": "M", stall: "W", stop: "W", continue: "C", numbers: "N", skipped: "K", rollback: "R", resume: "R",
  unlogged: "L", "epoch-end": "P", "other-data": "O", forecast: "F",
}));

// What the letters stand for, as far as there are any.
function showMarks() {
  const names = new Map();
  for (const {what} of marks()) {
    const name = kNotable.has(what) ? `new split (${what})` : what;
    if (kGlyphs.has(what)) names.set(kGlyphs.get(what), name);
    else names.set("•", "other events");
  }
  const texts = [...names].map(([glyph, name]) => `${glyph} ${name}`);
  document.getElementById("marks").textContent = texts.length ? `Marks: ${texts.join(" · ")}.` : "";
}

function marks() {
  const run = currentRun();
  return [...run.events.kept, ...run.decisions.kept.filter((note) => kNotable.has(note.what))];
}

function noteText(note) {
  return [note.what, note.worker, note.words].filter((text) => text).join(": ");
}

function nearestMark(place) {
  const [from, to] = currentWindow();
  let best = null;
  let distance = (to - from) / 100;
  for (const note of marks()) {
    const away = Math.abs(notePlace(note) - place);
    if (away <= distance) [best, distance] = [note, away];
  }
  return best;
}

function paintMarks(plot) {
  const {ctx, bbox} = plot;
  const ratio = window.devicePixelRatio || 1;
  ctx.save();
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  ctx.textBaseline = "top";
  let free = -Infinity;
  for (const note of marks().sort((a, b) => notePlace(a) - notePlace(b))) {
    const x = plot.valToPos(notePlace(note), "x", true);
    if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
    ctx.strokeStyle = ctx.fillStyle = themeColour("--faint");
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top + 14 * ratio);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (x < free) continue;
    ctx.fillText(kGlyphs.get(note.what) || "•", x, bbox.top + ratio);
    free = x + 9 * ratio;
  }
  ctx.restore();
}

// Dots and lines over batch sizes instead of steps: uPlot draws the axes, the rest is painted here.
function curvePoints() {
  const run = currentRun();
  const t = run.timeline;
  const [from, to] = currentWindow();
  const places = run.axis(state.axis);
  const [first, last] = [lowerBound(places, from), lowerBound(places, to)];
  const points = [];
  const step = Math.max(1, Math.ceil(((last - first + 1) * run.workers.length) / 20000));
  for (let worker = 0; worker < run.workers.length; ++worker) {
    for (let bin = first; bin <= last && bin < t.bins; bin += step) {
      const at = worker * t.bins + bin;
      const [batch, seconds] = [t.batch.mean[at], t.compute.mean[at]];
      if (batch > 0 && isNumber(seconds)) points.push([worker, batch, seconds]);
    }
  }
  return points;
}

const isShownWorker = (worker) => state.worker < 0 || state.worker === worker;

function curveRanges() {
  let [batch, seconds] = [0, 0];
  for (const [worker, b, s] of curvePoints()) {
    if (isShownWorker(worker)) [batch, seconds] = [Math.max(batch, b), Math.max(seconds, s)];
  }
  return {batch: batch * 1.1 || 1, seconds: seconds * 1.15 || 1};
}

function paintCurves(plot) {
  const run = currentRun();
  const {ctx, bbox} = plot;
  const ratio = window.devicePixelRatio || 1;
  const x = (batch) => plot.valToPos(batch, "x", true);
  const y = (seconds) => plot.valToPos(seconds, "y", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const dots = run.workers.map((unused, worker) => withAlpha(colourOf(worker, run.workers.length), 0.5));
  for (const [worker, batch, seconds] of curvePoints()) {
    if (!isShownWorker(worker)) continue;
    ctx.fillStyle = dots[worker];
    ctx.fillRect(x(batch) - 1.5 * ratio, y(seconds) - 1.5 * ratio, 3 * ratio, 3 * ratio);
  }
  ctx.lineWidth = 2 * ratio;
  run.curves.forEach((curve, worker) => {
    if (!isShownWorker(worker) || curve.length === 0) return;
    ctx.strokeStyle = colourOf(worker, run.workers.length);
    ctx.setLineDash(dashOf(worker, run.workers.length).map((length) => length * ratio));
    ctx.beginPath();
    curve.forEach(([batch, seconds]) => ctx.lineTo(x(batch), y(seconds)));
    ctx.stroke();
  });
  ctx.restore();
}

function describeCurves() {
  const {batch, seconds} = curveRanges();
  const hidden = {stroke: "transparent", points: {show: false}};
  return {data: [[0, batch], [0, seconds]], series: [hidden], key: "curves" + darkness.matches};
}

class CurveChart extends Chart {
  // The window chooses the dots, not the axis.
  follow() {
    if (!this.plot) return;
    const {batch, seconds} = curveRanges();
    this.plot.setData([[0, batch], [0, seconds]], false);
    this.plot.batch(() => {
      this.plot.setScale("x", {min: 0, max: batch});
      this.plot.setScale("y", {min: 0, max: seconds});
    });
    this.plot.redraw();
  }
}
