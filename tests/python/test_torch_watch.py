"""Watching loops that know nothing of Isochron, what a job says of its own gain, and profiles of one's own model."""

import json
import math
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import isochron.torch as isochron
from isochron import _core, job_key, read_run
from isochron import watch as watch_command
from isochron.torch import watching
from isochron.torch.forecast import Forecast
from isochron.torch.sealed import SealedStore
from chances import scribbled
from ranks import STORE, stop

HERE = Path(__file__).parent
LOOP = HERE / "watched_loop.py"
HOST = socket.gethostname().partition(".")[0]


def run_loop(folder, *arguments, watch=()):
    """The loop on two workers, the second of which takes 40 ms a sample, the first 10 ms; what it printed."""
    command = [sys.executable, "-m", "isochron.launch", "-n", "2", *watch, LOOP, *map(str, arguments)]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result


def weights_of(text):
    return re.findall(r"weights (\S+)", text)


def test_a_watched_loop_is_told_what_it_would_gain_and_trains_as_before(tmp_path):
    # Equal shares of 16 take 640 ms. Of 32 samples 26 and 6 would take 260 and 240 ms: 2.5 times as fast, less what a
    # step costs beside. The loop ends before 30 steps, so that nothing was probed.
    watched = run_loop(tmp_path, "ddp", watch=["--watch"])
    assert f"{HOST}-1 is the slowest of 2 workers" in watched.stderr
    gain = float(re.search(r"would be up to (\d\.\d) times as fast", watched.stderr)[1])
    assert 1.5 <= gain <= 2.6
    assert weights_of(watched.stdout) == weights_of(run_loop(tmp_path, "ddp").stdout) != []
    run = read_run(tmp_path / "isochron-watch.jsonl")
    assert run.header["policy"] == "uniform" and len(run.step_records) == 8
    for step in run.step_records:
        assert step["batch_sizes"] == [16, 16]
        fast, slow = step["compute_seconds"]
        assert slow >= 0.64 and fast < slow  # the fast one's waiting is no computing
    assert run.event_records[-1]["event"] == "forecast"
    assert run.event_records[-1]["words"] in watched.stderr


def test_a_job_gains_what_was_foretold_and_says_so_itself(tmp_path):
    """Within 10 %: sleeping workers are steady, but the machine may have other things to do in one run of three."""
    gains = []
    for turn in range(3):
        folder = tmp_path / str(turn)
        folder.mkdir()
        result = run_loop(folder, "both")
        gains.append([float(one) for one in re.search(r"gains (\S+) (\S+) (\S+)", result.stdout).groups()])
        foretold, own, true = gains[-1]
        if foretold == pytest.approx(true, rel=0.1) and own == pytest.approx(true, rel=0.1):
            return
    raise AssertionError(gains)


@pytest.mark.parametrize("kind", ["fsdp", "accelerate"])
def test_other_wrappers_are_watched(tmp_path, kind):
    if kind == "accelerate":
        pytest.importorskip("accelerate")
    result = run_loop(tmp_path, kind, watch=["--watch", "--watch-log", "seen.jsonl", "--no-probe"])
    assert (tmp_path / "seen.jsonl").exists() and not (tmp_path / "isochron-watch.jsonl").exists()
    assert re.search(r"-1 is the slowest .* would be up to \d\.\d times as fast", result.stderr), result.stderr


def test_a_script_without_a_wrapped_model_is_told_so(tmp_path):
    script = tmp_path / "alone.py"
    script.write_text("import torch\nm = torch.nn.Linear(1, 1)\no = torch.optim.SGD(m.parameters(), 0.1)\n"
                      "m(torch.ones(1, 1)).sum().backward()\no.step()\n")  # fmt: skip
    command = [sys.executable, "-m", "isochron.watch", str(script)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0 and "nothing is watched" in result.stderr
    missing = subprocess.run([*command[:-1], "none.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert missing.returncode == 2 and "script is 'none.py'; permitted: a file" in missing.stderr


def said(name, times, fixed=0.0, batch=32):
    """What a worker tells of ten steps of so many seconds each; its clock began anywhere."""
    start = 1000.0 * len(name)
    worker = _core.Introduction(shared={}, worker=_core.Worker(0, name=name))
    longest = 0.4
    readings = [[batch, start + n, times, 0.0, longest + 0.01, longest + 0.02] for n in range(10)]
    return {"introduction": worker.encode(), "fixed": fixed, "readings": readings}


def test_a_forecast_counts_from_the_end_of_the_exchange():
    # 0.4 s and 0.1 s for 32 samples each. The best split of 64 is 13 and 51: 0.1625 s and 0.159 s, and 0.02 s beside:
    # (0.4 + 0.02) / (0.1625 + 0.02) = 2.30.
    forecast = Forecast([said("slow", 0.4), said("fast", 0.1)])
    assert forecast.gain == pytest.approx(2.30, abs=0.02)
    assert "slow is the slowest of 2 workers; the others wait 71 % of a step" in forecast.sentence  # 0.3 of 0.42 s
    assert "about 2.3 times as fast" in forecast.sentence
    slow, fast = forecast.records[0].workers
    assert slow.wait_seconds == pytest.approx(0.0, abs=1e-6) and fast.wait_seconds == pytest.approx(0.3, abs=1e-6)
    assert slow.start_seconds == pytest.approx(fast.start_seconds)
    # A fixed half on both: 0.2 + 0.2 b / 32 and 0.05 + 0.05 b / 32. The same gain, as long as the slow one has samples:
    # its fixed part is slow, too. Here 6 and 58 samples take 0.2375 and 0.1406 s, none of them less.
    assert Forecast([said("slow", 0.4, 0.5), said("fast", 0.1, 0.5)]).gain == pytest.approx(0.42 / 0.2263, abs=0.05)
    # Unknown: the most that can be.
    assert "up to 2.3 times" in Forecast([said("slow", 0.4, None), said("fast", 0.1, None)]).sentence


def test_a_page_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    """Whether it cannot be begun, or has no room for all of it."""
    forecast = Forecast([said("slow", 0.4), said("fast", 0.1)])
    assert not forecast.write(tmp_path / "none" / "page.jsonl")
    assert "No such file or directory; the run goes on without a log" in caplog.text
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, most[1]))
    try:
        assert forecast.write(tmp_path / "page.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert "lines of the log are missing: " in caplog.text


def test_the_page_is_drawn_by_the_program_where_there_is_one(tmp_path, monkeypatch, caplog, capsys):
    from isochron.torch import forecast

    tool = tmp_path / "isochron"
    tool.write_text('#!/bin/sh\n[ "$1 $3" = "report -o" ] && cp "$2" "$4"\n')
    tool.chmod(0o755)
    monkeypatch.setattr(forecast, "program", lambda: tool)
    model = nn.Linear(2, 1)
    watch = isochron.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), log=tmp_path / "seen.jsonl")
    told = [said("slow", 0.4), said("fast", 0.1)]
    watch._tell(told)
    page = tmp_path / "seen.html"
    assert watch.sentence.endswith(f"times as fast. The page: {page}") and page.exists()
    assert watch.sentence in capsys.readouterr().err
    # Without a program, or with one that cannot, the loop goes on and is told how to draw it.
    tool.write_text("#!/bin/sh\necho 'isochron: no space left' >&2; exit 1\n")
    watch._tell(told)
    assert watch.sentence.endswith(f"The page: isochron report {tmp_path / 'seen.jsonl'}")
    assert "no page: isochron: no space left" in caplog.text
    monkeypatch.setattr(forecast, "program", lambda: None)
    watch._tell(told)
    assert watch.sentence.endswith(f"The page: isochron report {tmp_path / 'seen.jsonl'}")
    watch.close()


def test_the_program_draws_what_a_watch_has_written(tmp_path, monkeypatch):
    from isochron.torch import forecast

    tool = os.environ.get("ISOCHRON_PROGRAM")
    if not tool:
        pytest.skip("ISOCHRON_PROGRAM is not set")
    monkeypatch.setattr(forecast, "program", lambda: Path(tool))
    assert Forecast([said("slow", 0.4), said("fast", 0.1)]).write(tmp_path / "seen.jsonl")
    page = forecast.draw(tmp_path / "seen.jsonl")
    assert page == tmp_path / "seen.html" and "slow is the slowest of 2 workers" in page.read_text()


def test_a_mistyped_option_is_told_which_is_near(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("")
    for words, complaint in (
        (["--watch-stesp", "20", "x.py"], "unknown option '--watch-stesp'; did you mean --watch-steps?"),
        (["--steps=20", "x.py"], "unknown option '--steps=20'; did you mean --watch-steps?"),
        (["--blue", "x.py"], "unknown option '--blue'; permitted: --help, --watch-log, --watch-steps, --no-probe"),
        (["--watch-steps", "7", "x.py"], "--watch-steps: '7'; permitted: 8 or more"),
        (["--watch-log", "none/x.jsonl", "x.py"], "'none/x.jsonl'; permitted: a file that can be written (No such"),
    ):
        with pytest.raises(SystemExit) as ended:
            watch_command.parse(words)
        assert ended.value.code == 2
        assert complaint in capsys.readouterr().err
    assert watch_command.parse(["x.py", "--watch-stesp"]).arguments == ["--watch-stesp"]  # the script's own


def watched_as_the_first_of_two(store, tmp_path, monkeypatch):
    """A loop of twelve steps, whose process group has this store; the watch."""
    group = torch.distributed.distributed_c10d
    answers = (torch.distributed, {"is_initialized": True, "get_rank": 0, "get_world_size": 2}), (group, {
        "_get_default_store": store})  # fmt: skip
    for holder, name, value in ((holder, *one) for holder, some in answers for one in some.items()):
        monkeypatch.setattr(holder, name, lambda *unused, value=value: value)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watch = isochron.watch(model, optimizer, log=tmp_path / "watch.jsonl", steps=8, probe=False)
    for _ in range(12):
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return watch


HOSTILE = ["", "[", "7", "null", "[]", "{}", "[" * 5000, '{"readings": []}', '{"introduction": 3}',
           '{"introduction": "x", "fixed": "y", "readings": "z"}',
           '{"introduction": {}, "fixed": null, "readings": [[1], [2]]}']  # fmt: skip


@pytest.mark.parametrize("words", [*HOSTILE, *(f"random {number}" for number in range(20))])
def test_what_strangers_write_for_a_watch_does_not_reach_the_loop(tmp_path, monkeypatch, caplog, chance, words):
    """They know no key, and without a key of the job they know all that there is to know: then it is a warning."""
    store = torch.distributed.HashStore()
    key = job_key.mixed(f"watch {watching._watchers + 1}")
    if words.startswith("random"):
        words = json.dumps(scribbled(chance, {"introduction": "", "fixed": 0.5, "readings": [[4, 0, 1, 0, 1, 1]] * 8}))
    SealedStore(store, key, 60.0).set("1", words)
    watch = watched_as_the_first_of_two(store, tmp_path, monkeypatch)
    assert watch._over and not watch.sentence
    assert caplog.text.count("what the others saw is not known") == 1, caplog.text
    for name in ("1", "isochron/watch/1/1"):
        store.set(name, "[")
    other = SealedStore(store, b"another key", 60.0)
    ours = SealedStore(store, job_key.mixed(f"watch {watching._watchers + 1}"), 60.0)
    store.set(ours._name("1"), other._sealed("1", ""))
    watch = watched_as_the_first_of_two(store, tmp_path, monkeypatch)
    assert not watch._over and caplog.text.count("what the others saw is not known") == 1, caplog.text
    watch._finish()


def test_a_watch_does_not_wait_for_ever_for_what_the_others_saw(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(watching, "PATIENCE", 0.2)
    watch = watched_as_the_first_of_two(torch.distributed.HashStore(), tmp_path, monkeypatch)
    assert not watch._over
    watch.close()
    assert watch._over and "nobody of the job has written 1 within 0." in caplog.text, caplog.text


def test_a_watch_gives_up_a_store_whose_keeper_is_stopped(tmp_path, monkeypatch, caplog):
    """torch's own client waits for ever for an answer."""
    monkeypatch.setattr(watching, "STORE_SECONDS", 1.0)
    with subprocess.Popen([sys.executable, "-c", STORE], stdin=-1, stdout=-1, text=True) as keeper:
        store = torch.distributed.TCPStore("127.0.0.1", int(keeper.stdout.readline()), wait_for_workers=False)
        stop(keeper)
        watch = watched_as_the_first_of_two(store, tmp_path, monkeypatch)
        keeper.kill()
    assert watch._over and not watch.sentence
    assert caplog.text.count("the job's store did not answer within 1 s") == 1, caplog.text


def test_equal_workers_have_nothing_to_gain():
    assert "nothing is to be gained" in Forecast([said("a", 0.4), said("b", 0.4)]).sentence
    assert "there is one worker" in Forecast([said("a", 0.4)]).sentence
    unsteady = said("a", 0.4)
    unsteady["readings"] = [None] * 10
    assert "nothing can be said" in Forecast([unsteady, said("b", 0.1)]).sentence


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"steps": 3}, "steps is 3; permitted: 8 or more"),
        ({"log": "/nope/x.jsonl"}, "log is '/nope/x.jsonl'; permitted: a file that can be written"),
        ({"optimizer": 3}, "optimizer is a int; permitted: one of torch.optim's"),
    ],
)
def test_a_watch_refuses_what_it_cannot_do(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    model = nn.Linear(2, 1)
    given = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1), **arguments}
    with pytest.raises(ValueError, match=re.escape(words)):
        isochron.watch(model, **given)


def test_a_probe_finds_the_fixed_part_and_leaves_no_trace():
    import time

    from isochron.torch import probe

    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))

        def forward(self, x):
            time.sleep(0.15 + 0.005 * len(x))  # 310 ms for 32 samples, 190 ms for 8
            return self.layers(x)

    model = Slow()
    forward = probe.Forward.of((torch.randn(32, 3),), {}, torch.device("cpu"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.random.get_rng_state()
    share, seconds = probe.measure_fixed_share(model, forward, torch.device("cpu"))
    assert share == pytest.approx(0.15 / 0.31, abs=0.15)
    assert seconds >= 0.31
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.random.get_rng_state(), random)


def test_a_job_alone_sums_up_what_it_did():
    job = isochron.Job(global_batch=10)
    model = nn.Linear(3, 1)
    model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    data = torch.utils.data.TensorDataset(torch.randn(100, 3), torch.randn(100, 1))
    for x, y in job.loader(data):
        job.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()
    summary = job.summary()
    assert summary.steps == 10 and summary.samples_per_second > 0 and math.isnan(summary.over_equal_shares)
    assert str(summary).startswith("10 steps, ") and "equal shares" not in str(summary)


def test_a_profile_of_ones_own_model_is_one_for_plan(tmp_path):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    before = [parameter.clone() for parameter in model.parameters()]
    data = torch.utils.data.TensorDataset(torch.randn(50, 8), torch.randint(0, 2, (50,)))
    path = tmp_path / "own.json"
    isochron.profile(
        model, lambda model, x, y: nn.functional.cross_entropy(model(x), y), data, optimizer,
        path=path, max_batch=20, seconds=30.0,
    )  # fmt: skip
    document = json.loads(path.read_text())
    assert [point["batch"] for point in document["points"]] == [1, 2, 4, 8, 16]
    assert document["parameter_bytes"] == 4 * (8 * 16 + 16 + 16 * 2 + 2) and document["dataset_size"] == 50
    assert document["update_seconds"] > 0
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters())) and not optimizer.state
    program = os.environ.get("ISOCHRON_PROGRAM") or HERE.parents[1] / "build" / "dev" / "bin" / "isochron"
    if not Path(program).exists():
        pytest.skip("the program isochron is not built")
    command = [program, "plan", "--cluster", "hl4", "--model-profile", path, "--global-batch", "64"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and "samples" in result.stdout, result.stderr
