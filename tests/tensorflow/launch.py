#!/usr/bin/env python3
"""Runs the tests of isochron.tensorflow on real processes: launch.py [WORLD[:CASE,CASE...]...], by default all.

Importing TensorFlow takes seconds, so it is done once; the workers are forked from there, before TensorFlow has started
any thread of its own, and run their cases one after the other. Exit code 77: TensorFlow is not installed.
"""

import json
import os
import pathlib
import sys
import tempfile
import time
import traceback

os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="2", TF_ENABLE_ONEDNN_OPTS="1")
sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
from passed_before import note, passed_before  # noqa: E402
from ports import free_ports  # noqa: E402

try:
    import tensorflow  # noqa: F401
except ImportError:
    print("skipped: TensorFlow is not installed in", sys.prefix)
    sys.exit(77)

sys.path[:0] = [str(ROOT / "python"), str(HERE)]

WORLDS = {  # workers, cases; each world finds the files of those before it in ..
    "two": (2, ["save", "callbacks", "rebalances", "memory", "fit_mlp", "fit_cnn", "numbers", "own_errors", "full_log",
                "no_log", "hidden_numbers", "skipped_numbers", "mistakes", "sources"]),
    "fit": (2, ["fit_transformer", "unweighted", "let_go", "own_train_step", "backup", "summary", "optimizers",
                "mixed_precision", "compiled", "fit_options", "fit_arrays", "compiled_again", "sync_points",
                "first_of_a_size", "save_with_a_batch_out", "earlier_version", "time_outs_are_ours",
                "examples_after"]),
    "data": (2, ["own_pipelines", "fit_pipeline", "pipeline_mistakes", "lengths",
                 "lengths_pipeline", "lengths_unweighted", "early_exit", "log_again", "two_datasets", "fine_tuning",
                 "other_data", "other_options", "farewell"]),
    "three": (3, ["loop_mlp", "loop_cnn", "loop_transformer", "resume"]),
    "one": (1, ["loop_cnn", "fit_cnn", "callbacks", "resume", "rendezvous", "rendezvous_strangers",
                "pair_frames", "roll_call_strangers", "mistakes", "stream_source", "pipeline_mistakes",
                "lengths_mistakes", "own_pipelines", "examples_before", "no_torch", "reports", "async_unclosed",
                "launched", "launched_loss", "program_launched"]),
    "lost": (3, ["lost"]),
    "short": (2, ["memory_norms"]),
    "short_fit": (2, ["memory_norms_fit"]),
    "async": (2, ["bound_zero", "every_sample", "every_sample_over_sockets", "bounded", "refusals", "not_finite"]),
    "async_lost": (3, ["async_lost"]),
    "async_lost_coordinator": (3, ["async_lost_coordinator"]),
    "async_lost_sockets": (3, ["async_lost_sockets"]),
    "async_left": (3, ["async_left"]),
    "async_stopped": (3, ["async_stopped"]),
}  # fmt: skip
NEEDS = {  # the cases whose files another one reads
    "three.resume": ["two.save"],
    "one.resume": ["two.save"],
    "one.reports": ["two.callbacks", "two.rebalances", "two.memory"],
}


def be_worker(rank, ports, folder, cases):
    log = os.open(folder / f"log.{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if len(ports) > 1:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})
    import worker

    worker.run(rank, folder, cases)


def cases_of(worlds):
    """(world, cases): all that a world has, or those that are named; in a second try those that have not passed, and
    those whose files they read."""
    before = passed_before()
    asked = [(name, only.split(",") if only else WORLDS[name][1])
             for name, _, only in (world.partition(":") for world in worlds)]  # fmt: skip
    left = {f"{name}.{case}" for name, cases in asked for case in cases} - before
    left |= {needed for case in left for needed in NEEDS.get(case, ())}
    chosen = [(name, [case for case in cases if f"{name}.{case}" in left]) for name, cases in asked]
    return [(name, cases) for name, cases in chosen if cases]


def run_world(name, cases, folder):
    """The names of the cases that failed."""
    size, _ = WORLDS[name]
    folder.mkdir()
    ports = free_ports(size)
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            try:
                be_worker(rank, ports, folder, cases)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return [case for case in cases if not passed(folder, case, size)]


def passed(folder, case, size):
    files = [folder / f"{case}.{rank}" for rank in range(size)]
    said = [file.read_text() if file.exists() else "no word" for file in files]
    if all(words.startswith("passed") for words in said):
        print(f"{folder.name}.{case}: {said[0]}", flush=True)
        note(f"{folder.name}.{case}")
        return True
    for rank, words in enumerate(said):
        print(f"{folder.name}.{case}, rank {rank}: {words}\n{(folder / f'log.{rank}').read_text()[-3000:]}", flush=True)
    return False


def main(worlds):
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, cases in cases_of(worlds):
            start = time.monotonic()
            failed += [f"{name}.{case}" for case in run_world(name, cases, pathlib.Path(scratch) / name)]
            print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or WORLDS))
