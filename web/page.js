// Puts the page together, and keeps it up to date if it is live.
"use strict";

function showAll() {
  showRuns();
  showNotice();
  showWorkers();
  showNotes();
  showMarks();
  drawAll();
}

function makeCharts() {
  const seconds = {values: (plot, ticks) => ticks.map(formatSeconds), size: 70};
  new Chart("batches", "Batch size of every worker", () => {
    const spread = currentRun().timeline.batch;
    return (state.stacked ? describeStack : describeLines)(spread, (value) => formatNumber(value, value % 1 ? 1 : 0));
  });
  new Chart("times", "Compute time of every worker", () => describeLines(currentRun().timeline.compute, formatSeconds),
            {axis: seconds});
  new Gantt("gantt", "Computing, waiting and communicating of every worker over time; up and down choose a worker");
  const ratio = (value) => formatNumber(value, 3);
  const marked = {paint: paintMarks, range: rangeUpToOne};
  const balance = spreadOf((run) => run.timeline.balance);
  new Chart("balance", "Balance of the runs", () => describeRuns(balance, ratio), marked);
  const utilization = spreadOf((run) => run.timeline.utilization);
  new Chart("utilization", "Utilization of the runs", () => describeRuns(utilization, ratio), marked);
  const speed = spreadOf((run) => run.samplesPerSecond());
  new Chart("speed", "Samples per second of the runs", () => describeRuns(speed, (value) => formatNumber(value, 1)),
            {paint: paintMarks});
  new CurveChart("curves", "Compute time over batch size", describeCurves,
                 {axis: seconds, label: "batch size", paint: paintCurves, free: () => [0, curveRanges().batch]});
  const loss = spreadOf((run) => run.timeline.loss);
  new Chart("loss", "Loss of the runs", () => describeRuns(loss, (value) => formatNumber(value, 4)),
            {range: rangeAround});
  new Chart("test-loss", "Loss of the runs on test data",
            () => describeRuns(evaluationsOf("loss"), (value) => formatNumber(value, 4)), {range: rangeAround});
  const percent = (value) => formatNumber(100 * value, 1) + " %";
  new Chart("accuracy", "Accuracy of the runs", () => describeRuns(evaluationsOf("accuracy"), percent), {
    range: (plot, low, high) => rangeAround(plot, low, high).map((end) => Math.min(1, end)),
    axis: {values: (plot, ticks) => formatPercentTicks(ticks)},
  });
}

function makeControls() {
  const chooser = document.getElementById("run");
  state.runs.forEach((run, number) => {
    const option = element("option", run.name);
    option.value = number;
    chooser.append(option);
  });
  chooser.addEventListener("change", () => {
    state.run = Number(chooser.value);
    state.worker = -1;
    showAll();
  });
  chooser.parentElement.hidden = state.runs.length < 2;
  document.querySelectorAll("input[name=axis]").forEach((box) => {
    box.addEventListener("change", () => setAxis(box.value));
  });
  document.querySelectorAll("input[name=stacked]").forEach((box) => {
    box.addEventListener("change", () => {
      state.stacked = box.value === "yes";
      drawAll();
    });
  });
  const ends = ["from", "to"].map((id) => document.getElementById(id));
  ends.forEach((end) => end.addEventListener("change", () => setWindow(ends.map((input) => Number(input.value)))));
  document.querySelectorAll("button[data-key]").forEach((button) => {
    button.addEventListener("click", () => kKeys[button.dataset.key]());
  });
  darkness.addEventListener("change", showAll);
  window.addEventListener("resize", showWider);
  const key = document.getElementById("gantt-key");
  for (const [name, variable] of [["computing", "--compute"], ["waiting", "--wait"], ["communicating", "--exchange"]]) {
    key.append(element("span", swatch(`var(${variable})`)));
    key.lastChild.append(name);
  }
}

function showStatus(text) {
  const status = document.getElementById("status");
  status.hidden = false;
  status.textContent = text;
}

function progressText(run) {
  const done = run.timeline.records;
  const last = run.timeline.bins > 0 ? run.timeline.lastStep[run.timeline.bins - 1] + 1 : 0;
  // A job that goes on has made fewer steps in this log than its last step says.
  const rate = run.summary.total_seconds > 0 ? done / run.summary.total_seconds : 0;
  const missing = run.total_steps - last;
  const left = missing > 0 && rate > 0 ? `, about ${formatSeconds(missing / rate)} to go` : "";
  const total = run.total_steps > 0 ? ` of ${formatNumber(run.total_steps)}` : "";
  return done > 0 ? `step ${formatNumber(last)}${total}${left}` : "waiting for the first step";
}

// A page in use should not hold more bins than a fresh one by much: then it begins anew.
const kMostBins = 20000;

class Live {
  constructor() {
    this.token = new URLSearchParams(location.search).get("token");
    this.listen();
  }

  address(path, more = {}) {
    const words = new URLSearchParams({...more, ...(this.token ? {token: this.token} : {})});
    return words.size > 0 ? `${path}?${words}` : path;
  }

  listen() {
    const run = state.runs[0];
    showStatus(`Live: ${progressText(run)}`);
    const source = new EventSource(this.address("events", {after: run.timeline.records}));
    source.addEventListener("update", (event) => {
      const update = JSON.parse(event.data);
      run.append(update.run);
      document.getElementById("headline").textContent = update.headline;
      showStatus(`Live: ${progressText(run)}`);
      showAll();
      if (run.timeline.bins > kMostBins) this.restart(source);
    });
    source.addEventListener("reload", () => this.restart(source));
    source.addEventListener("end", () => {
      source.close();
      showStatus(`The run has ended: ${progressText(run)}`);
    });
    source.addEventListener("error", () => showStatus(`Connection lost, trying again. Last: ${progressText(run)}`));
  }

  async restart(source) {
    source.close();
    await new Promise((resolve) => setTimeout(resolve, 1000));
    try {
      const answer = await fetch(this.address("data.json"));
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const data = await answer.json();
      state.runs = data.runs.map((json) => new Run(json));
      document.getElementById("headline").textContent = data.headline;
      showAll();
      this.listen();
    } catch (error) {
      showStatus(`Connection lost (${error.message}), trying again.`);
      this.restart(source);
    }
  }
}

function main() {
  const data = JSON.parse(document.getElementById("data").textContent);
  document.getElementById("headline").textContent = data.headline;
  state.runs = data.runs.map((json) => new Run(json));
  const ours = state.runs.findIndex((run) => run.policy.startsWith("isochron"));
  state.run = Math.max(ours, 0);
  makeControls();
  document.getElementById("run").value = state.run;
  makeCharts();
  showAll();
  if (data.live) new Live();
  document.documentElement.dataset.ready = "yes";
}

main();
