// The tables; they are the plots' legends as well. Whatever a log says is set as text, never as HTML.
"use strict";

function element(name, content, className) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(content instanceof Node ? content : String(content));
  return made;
}

// Leaves out the columns of which no row knows anything.
function leaveOutUnknown(titles, rows) {
  for (let column = titles.cells.length - 1; column >= 0 && rows.length > 0; --column) {
    if (rows.some((one) => one.cells[column].textContent !== kUnknown)) continue;
    [titles, ...rows].forEach((one) => one.deleteCell(column));
  }
}

// Replaces what the table holds; the keyboard stays where it was.
function fillTable(table, head, rows) {
  const controls = () => [...table.querySelectorAll("button, input")];
  const focused = controls().indexOf(document.activeElement);
  const titles = document.createElement("tr");
  head.forEach(([title, className]) => titles.append(element("th", title, className)));
  titles.querySelectorAll("th").forEach((cell) => (cell.scope = "col"));
  leaveOutUnknown(titles, rows);
  const top = document.createElement("thead");
  top.append(titles);
  const body = document.createElement("tbody");
  body.append(...rows);
  table.replaceChildren(top, body);
  if (focused >= 0 && focused < controls().length) controls()[focused].focus({preventScroll: true});
  showWider();
}

// Says so where a table is cut off.
function showWider() {
  const tables = [...document.querySelectorAll(".scroll")];
  document.getElementById("wider").hidden = tables.every((one) => one.scrollWidth <= one.clientWidth);
}

function swatch(colour) {
  const square = document.createElement("span");
  square.className = "swatch";
  square.style.background = colour;
  return square;
}

function row(cells) {
  const made = document.createElement("tr");
  made.append(...cells.map(([content, className]) => element("td", content, className)));
  return made;
}

function runCell(run, number) {
  const label = document.createElement("label");
  const box = document.createElement("input");
  box.type = "checkbox";
  box.checked = !state.hidden.has(number);
  box.addEventListener("change", () => {
    if (box.checked) state.hidden.delete(number);
    else state.hidden.add(number);
    drawAll();
  });
  label.append(box, " ", swatch(colourOf(number, state.runs.length)), run.name);
  return label;
}

function showRuns() {
  const head = [["run", "word"], ["samples/s"], ["x equal shares in the last 32 steps", "wrapped"], ["balance"], ["utilization"], ["p50"], ["p99"],
                ["changes"], ["steps"], ["time"], ["loss"], ["accuracy"], ["policy", "word"]];
  const rows = state.runs.map((run, number) => {
    const s = run.summary;
    const accuracy = isNumber(s.test_accuracy) ? formatNumber(100 * s.test_accuracy, 1) + " %" : kUnknown;
    return row([[runCell(run, number), "word"], [formatNumber(s.samples_per_second, 1)],
                [formatNumber(s.over_equal_shares, 1)],
                [formatNumber(s.balance, 3)], [formatNumber(s.utilization, 3)], [formatSeconds(s.step_seconds.p50)],
                [formatSeconds(s.step_seconds.p99)], [formatNumber(s.adjustments)], [formatNumber(s.steps)],
                [formatSeconds(s.total_seconds)], [formatNumber(s.loss, 4)], [accuracy], [run.policy, "word"]]);
  });
  fillTable(document.getElementById("runs"), head, rows);
  const run = currentRun();
  const facts = [run.cluster && `cluster ${run.cluster}`, run.model && `model ${run.model}`,
                 run.dataset && `dataset ${run.dataset}`, `global batch ${formatNumber(run.global_batch)}`,
                 `seed ${run.seed}`, `isochron ${run.version} ${run.program}`];
  document.getElementById("about").textContent = facts.filter((fact) => fact).join(", ");
}

function selectWorker(worker) {
  state.worker = worker;
  showWorkers();
  drawAll();
}

function workerCell(worker, place, count) {
  const button = element("button", worker.name, "name");
  button.type = "button";
  button.setAttribute("aria-pressed", String(state.worker === place));
  button.prepend(swatch(colourOf(place, count)));
  button.addEventListener("click", () => selectWorker(state.worker === place ? -1 : place));
  return button;
}

function showWorkers() {
  const run = currentRun();
  const total = run.workers.reduce((sum, worker) => sum + worker.samples, 0);
  const share = (part, whole) => (whole > 0 ? formatNumber((100 * part) / whole, 1) + " %" : kUnknown);
  const work = run.workers.reduce((sum, worker) => sum + worker.work, 0);
  const padded = run.workers.some((worker) => worker.padding > 0);
  // This one is for a run whose workers wait in the middle of steps, so that it can be seen.
  const within = (cell) => (run.workers.some((one) => one.inner_wait > 0.001 * one.compute) ? [cell] : []);
  // These columns are for a run whose steps are dealt by cost.
  const costs = (cells) => (work > 0 ? cells.slice(0, padded ? 2 : 1) : []);
  const head = [["worker", "word"], ["mean batch"], ["of all samples"], ...costs([["of all work"], ["padding"]]),
                ["computing"], ["waiting"], ...within(["of it within steps"]), ["communicating"], ["mean compute"],
                ["peak memory"], ["steps"], ["kind", "word"]];
  const rows = run.workers.map((worker, place) => {
    const busy = worker.compute + worker.wait + worker.exchange;
    const name = document.createElement("span");
    name.append(workerCell(worker, place, run.workers.length), worker.present ? "" : " (gone)");
    const made = row([[name, "word"], [formatNumber(worker.samples / worker.steps, 1)], [share(worker.samples, total)],
                      ...costs([[share(worker.work, work)], [share(worker.padding, worker.work)]]),
                      [share(worker.compute, busy)], [share(worker.wait, busy)],
                      ...within([share(worker.inner_wait, busy)]), [share(worker.exchange, busy)],
                      [formatSeconds(worker.compute / worker.steps)],
                      [worker.last.peak_memory > 0 ? share(worker.last.peak_memory, 1) : kUnknown], [formatNumber(worker.steps)],
                      [worker.kind, "word"]]);
    if (!worker.present) made.className = "gone";
    return made;
  });
  fillTable(document.getElementById("workers"), head, rows);
}

// Zooms to a note; the steps around it are kept exactly where they can be.
function noteCell(note) {
  const button = element("button", formatNumber(note.step), "name");
  button.type = "button";
  button.title = "Zoom to this step";
  button.addEventListener("click", () => {
    if (state.axis === "steps") return setWindow([note.step - 12, note.step + 12]);
    const run = currentRun();
    const bin = Math.min(lowerBound(run.times, note.seconds), run.timeline.bins - 1);
    const [first, last] = [Math.max(0, bin - 12), Math.min(run.timeline.bins - 1, bin + 12)];
    return setWindow([run.times[first], run.times[last]]);
  });
  return button;
}

function showNotes() {
  const run = currentRun();
  const notes = [...run.events.kept.map((note) => [note, note.what]),
                 ...run.decisions.kept.map((note) => [note, `split: ${note.what}`])];
  notes.sort(([a], [b]) => a.seconds - b.seconds || a.step - b.step);
  const head = [["step"], ["time"], ["what", "word"], ["worker", "word"], ["in words", "word"]];
  const rows = notes.map(([note, what]) =>
    row([[noteCell(note)], [formatSeconds(note.seconds)], [what, "word"], [note.worker || "", "word"],
         [note.words, "word long"]]));
  fillTable(document.getElementById("notes"), head, rows);
  const left = (list) => list.total - list.kept.length;
  const texts = [left(run.events) > 0 && `${formatNumber(left(run.events))} events`,
                 left(run.decisions) > 0 && `${formatNumber(left(run.decisions))} decisions`].filter((text) => text);
  document.getElementById("notes-left-out").textContent =
    texts.length ? `Left out between the first and the last ones: ${texts.join(" and ")}.` : "";
}

function showNotice() {
  const run = currentRun();
  const t = run.timeline;
  const texts = [];
  if (t.exact) {
    texts.push(`All ${formatNumber(t.records)} steps are here, each exactly.`);
  } else {
    let exact = 0;
    let widest = 1;
    for (const count of t.count) {
      exact += count === 1 ? 1 : 0;
      widest = Math.max(widest, count);
    }
    texts.push(`${formatNumber(t.records)} steps are drawn as ${formatNumber(t.bins)} points: ` +
               `${formatNumber(exact)} are single steps (the first, the last and those around events), ` +
               `the others sum up to ${formatNumber(widest)} steps each. Lines are means; the smallest and the ` +
               "largest value of every point are kept and drawn as a band, for a worker once it is selected.");
  }
  const between = run.summary.between_seconds;
  if (between > 0.01 * run.summary.total_seconds) {
    texts.push(`Times are those of training: ${formatSeconds(between)} between steps (evaluations, checkpoints, ` +
               "recovery, turns of other runs) are left out.");
  }
  if (run.asynchronous) {
    texts.push("Where a worker has no bar, it has nothing to do: at the end of an epoch it waits for the others, and " +
               "for evaluations and checkpoints.");
  }
  if (run.workers_left_out > 0) {
    const [left, kept] = [run.workers_left_out, run.workers.length].map((count) => formatNumber(count));
    texts.push(`${left} workers beyond the first ${kept} count in the sums only.`);
  }
  document.getElementById("notice").textContent = texts.join(" ");
}

function showWindow() {
  const [from, to] = currentWindow();
  const rounded = (value) => (state.axis === "steps" ? Math.round(value) : Number(value.toPrecision(6)));
  document.getElementById("from").value = rounded(from);
  document.getElementById("to").value = rounded(to);
}
