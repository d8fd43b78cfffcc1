// One run as the page holds it.
//
// The timeline is a list of bins: each is one step or several neighbouring ones, of which the smallest, the mean and
// the largest value are known. Columns come as base64 of little-endian floats; NaN means that there is nothing. `cells` has
// a value per worker and bin, all bins of a worker together.
"use strict";

function decode(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; ++i) bytes[i] = raw.charCodeAt(i);
  return bytes.buffer;
}

const floats = (text) => new Float32Array(decode(text));
const doubles = (text) => new Float64Array(decode(text));

function decodeSpread(spread) {
  const mean = floats(spread.mean);
  return {mean, low: spread.low ? floats(spread.low) : mean, high: spread.high ? floats(spread.high) : mean};
}

function decodeTimeline(json, workers) {
  const cells = json.cells;
  return {
    bins: json.bins,
    records: json.records,
    exact: json.exact,
    workers,
    count: floats(json.count),
    firstStep: doubles(json.first_step),
    lastStep: doubles(json.last_step),
    start: doubles(json.start),
    end: doubles(json.end),
    samples: floats(json.samples),
    busy: floats(json.busy),
    seconds: decodeSpread(json.seconds),
    rate: decodeSpread(json.rate),
    balance: decodeSpread(json.balance),
    utilization: decodeSpread(json.utilization),
    loss: decodeSpread(json.loss),
    batch: decodeSpread(cells.batch),
    compute: decodeSpread(cells.compute),
    wait: floats(cells.wait),
    exchange: floats(cells.exchange),
    offset: cells.offset ? floats(cells.offset) : new Float32Array(json.bins * workers),
  };
}

function joined(a, b) {
  const both = new a.constructor(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

// The rows of two matrices one behind the other; workers that were not there yet get NaN.
function joinedRows(a, aBins, b, bBins, workers) {
  const bins = aBins + bBins;
  const both = new Float32Array(bins * workers).fill(NaN);
  for (let worker = 0; worker < workers; ++worker) {
    both.set(a.subarray(worker * aBins, (worker + 1) * aBins), worker * bins);
    both.set(b.subarray(worker * bBins, (worker + 1) * bBins), worker * bins + aBins);
  }
  return both;
}

function joinSpreads(a, b, join) {
  return {mean: join(a.mean, b.mean), low: join(a.low, b.low), high: join(a.high, b.high)};
}

// The columns of a timeline, by kind: numbers per bin, spreads per bin, spreads and numbers per worker and bin.
const kColumns = ["count", "firstStep", "lastStep", "start", "end", "samples", "busy"];
const kSpreads = ["seconds", "rate", "balance", "utilization", "loss"];
const kSpreadRows = ["batch", "compute"];
const kRows = ["wait", "exchange", "offset"];

function joinTimelines(a, b) {
  const both = {bins: a.bins + b.bins, records: b.records, exact: a.exact && b.exact, workers: b.workers};
  const rows = (left, right) => joinedRows(left, a.bins, right, b.bins, b.workers);
  for (const name of kColumns) both[name] = joined(a[name], b[name]);
  for (const name of kSpreads) both[name] = joinSpreads(a[name], b[name], joined);
  for (const name of kSpreadRows) both[name] = joinSpreads(a[name], b[name], rows);
  for (const name of kRows) both[name] = rows(a[name], b[name]);
  return both;
}

// The first `bins` bins: the job went back, and what came later did not happen.
function shortenTimeline(timeline, bins) {
  const shorter = {...timeline, bins};
  const front = (column) => column.slice(0, bins);
  const rows = (matrix) => {
    const kept = new Float32Array(bins * timeline.workers);
    for (let worker = 0; worker < timeline.workers; ++worker) {
      kept.set(matrix.subarray(worker * timeline.bins, worker * timeline.bins + bins), worker * bins);
    }
    return kept;
  };
  const each = (spread, cut) => ({mean: cut(spread.mean), low: cut(spread.low), high: cut(spread.high)});
  for (const name of kColumns) shorter[name] = front(timeline[name]);
  for (const name of kSpreads) shorter[name] = each(timeline[name], front);
  for (const name of kSpreadRows) shorter[name] = each(timeline[name], rows);
  for (const name of kRows) shorter[name] = rows(timeline[name]);
  return shorter;
}

class Run {
  constructor(json) {
    this.take(json);
    this.timeline = decodeTimeline(json.timeline, json.workers.length);
    this.place();
  }

  take(json) {
    for (const key of Object.keys(json)) {
      if (key !== "timeline") this[key] = json[key];
    }
  }

  // Adds what came since.
  append(json) {
    this.take(json);
    const more = decodeTimeline(json.timeline, json.workers.length);
    let kept = this.timeline.bins;
    while (more.bins > 0 && kept > 0 && this.timeline.firstStep[kept - 1] > more.firstStep[0]) --kept;
    const before = kept < this.timeline.bins ? shortenTimeline(this.timeline, kept) : this.timeline;
    this.timeline = joinTimelines(before, more);
    this.place();
  }

  // Where each bin stands on the two axes; a plot needs places that never go back.
  place() {
    const t = this.timeline;
    this.steps = new Array(t.bins);
    this.times = new Array(t.bins);
    for (let i = 0; i < t.bins; ++i) {
      const step = (t.firstStep[i] + t.lastStep[i]) / 2;
      const time = t.count[i] > 1 ? (t.start[i] + t.end[i]) / 2 : t.start[i];
      this.steps[i] = Math.max(isNumber(step) ? step : 0, i > 0 ? this.steps[i - 1] : -Infinity);
      this.times[i] = Math.max(isNumber(time) ? time : 0, i > 0 ? this.times[i - 1] : -Infinity);
    }
  }

  axis(name) {
    return name === "steps" ? this.steps : this.times;
  }

  // One worker's values, null where there is none. A worker that is not in step has none at the updates of the others:
  // from its first to its last update the value of the one before stands there.
  row(matrix, worker) {
    const bins = this.timeline.bins;
    const row = plain(matrix.subarray(worker * bins, (worker + 1) * bins));
    if (this.asynchronous) {
      const last = row.findLastIndex((value) => value !== null);
      for (let i = 1; i < last; ++i) row[i] ??= row[i - 1];
    }
    return row;
  }

  // A mean of rates would say too much where steps differ in length.
  samplesPerSecond() {
    const t = this.timeline;
    const mean = Float32Array.from(t.samples, (samples, i) => (t.busy[i] > 0 ? samples / t.busy[i] : NaN));
    return {mean, low: t.rate.low, high: t.rate.high};
  }
}

function plain(column) {
  return Array.from(column, (value) => (Number.isNaN(value) ? null : value));
}

// The first place whose value is not below `value`.
function lowerBound(values, value) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
