"""Loops as people are used to write them: they work, or are told what to do, and their logs are proven."""

import itertools
import json
import os
import subprocess

import pytest
import torch

from loop_cells import BATCH
from isochron.torch.loss_weight import LossWeight
from isochron.torch.world import reason_of

CASES = "torch_habit_cases:"


@pytest.fixture
def ledger():
    program = os.environ.get("ISOCHRON_PROGRAM")
    if not program:
        pytest.skip("ISOCHRON_PROGRAM is not set")

    def prove(path):
        done = subprocess.run([program, "ledger", path], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()[-1]

    return prove


def together(results):
    return sorted(number for one in results for number in one["seen"])


@pytest.mark.parametrize("kind", ["map", "stream"])
@pytest.mark.parametrize("order", [*map(" ".join, itertools.permutations(["prepare", "loader", "restore"]))])
def test_a_restored_job_goes_on_with_its_log(pair, tmp_path, ledger, order, kind):
    results = pair.run(CASES + "half_and_rest", folder=str(tmp_path), order=order, kind=kind)
    assert together(results) == list(range(487)) and all(one["complete"] and one["whole"] for one in results)
    assert ledger(tmp_path / "run.jsonl") == (
        0, "Proven: every sample of the finished epoch was used exactly once.")  # fmt: skip
    records = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if record["type"] == "step"] == list(range(13))


def test_what_was_saved_waits_until_as_much_is_prepared(pair, tmp_path):
    saved = "1 models, 1 optimizers, 0 schedulers and scalers"
    begin = f"Error: what restore() has read is of {saved}, and prepare() was given"
    for words in pair.run(CASES + "restored_before_prepare", folder=str(tmp_path)):
        counts = ["1 models, 0 optimizers"] * 2 + ["2 models, 1 optimizers"]
        assert [one.startswith(f"{begin} {count}") for one, count in zip(words, counts, strict=True)] == [True] * 3


def test_a_log_is_never_overwritten(alone, tmp_path, ledger):
    alone.run(CASES + "run_again", folder=str(tmp_path))
    for name in ("run.jsonl", "run.1.jsonl"):
        assert ledger(tmp_path / name)[0] == 0
        assert sum('"type":"step"' in line for line in (tmp_path / name).read_text().splitlines()) == 12


@pytest.mark.parametrize("sync", ["bsp", "local", "asp"])
def test_a_job_that_is_closed_leaves_no_thread_and_no_model(pair, sync):
    """The first job of all may start threads that PyTorch keeps."""
    for (after_one, after_two), models in pair.run(CASES + "what_stays", sync=sync):
        assert after_two <= after_one and models == [False, False]


@pytest.mark.parametrize("ranks", ["alone", "pair"])
def test_a_log_that_cannot_be_written_is_refused_at_once(ranks, request, tmp_path):
    path = str(tmp_path / "none" / "run.jsonl")
    for words in request.getfixturevalue(ranks).run(CASES + "unwritable", path=path):
        assert words == (
            f"ValueError: log is '{path}'; permitted: a file that the first worker can write "
            "(No such file or directory)"
        )


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_stream_gives_each_sample_once_and_its_end_is_proven(pair, tmp_path, ledger, num_workers):
    results = pair.run("torch_stream_cases:stream", folder=str(tmp_path), num_workers=num_workers)
    for epoch in range(2):
        assert sorted(number for one in results for number in one["seen"][epoch]) == list(range(103))
    assert all(one["complete"] and one["epoch"] == 2 for one in results)
    assert ledger(tmp_path / "run.jsonl") == (
        0, "Proven: every sample of the 2 finished epochs was used exactly once.")  # fmt: skip


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_stream_in_parts_goes_on_with_another_number_of_workers(pair, alone, tmp_path, ledger, num_workers):
    before = pair.run(CASES + "shards_half", folder=str(tmp_path), num_workers=num_workers)
    after = alone.run(CASES + "shards_rest", folder=str(tmp_path))
    assert together([*before, *after]) == list(range(487)) and after[0]["complete"]
    assert ledger(tmp_path / "run.jsonl")[0] == 0


def test_a_lost_workers_parts_are_read_by_the_others(trio, tmp_path):
    trio.start(CASES + "shards_lost", folder=str(tmp_path), victim=2)
    assert [trio.result(rank) for rank in (0, 1)] == [(True, 2)] * 2
    used = [int(line) for rank in range(3) for line in (tmp_path / f"used.{rank}").read_text().split()]
    assert sorted(used) == list(range(487))


def test_a_worker_may_be_lost_before_a_pass_that_ddp_would_not_average(trio, tmp_path):
    trio.start(CASES + "lost_between_passes", folder=str(tmp_path), victim=2)
    results = [trio.result(rank) for rank in (0, 1)]
    assert results[0] == results[1] and results[0][:2] == (True, 2)
    used = [int(line) for rank in range(3) for line in (tmp_path / f"used.{rank}").read_text().split()]
    assert sorted(used) == list(range(280))


def test_hugging_face_streams_are_dealt_by_shard(pair):
    results = pair.run("torch_stream_cases:streaming_dataset")
    assert together(results) == list(range(487))
    hint = "the stream has 24 parts, of which every worker reads all; with job.loader(Shards.of(dataset)) each is"
    assert [one["hints"] for one in results] == [[f"{hint} read by one"], []]
    assert results[0]["words"] == [
        "ValueError: the dataset was split by node; permitted: the whole one, which the job deals",
        "ValueError: Shards.of() got a list; permitted: a dataset with num_shards, shard()",
        "ValueError: Shards has 0 parts; permitted: 1 or more",
    ]


def test_streams_that_differ_between_workers_are_found_out(pair):
    for rank, words in enumerate(pair.run("torch_stream_cases:unlike_streams")):
        begin = "ValueError: the workers' streams begin epoch 0 with different samples; permitted: the same ones"
        assert words[0].startswith(begin) and words[1].startswith(begin)
        assert words[2] == ""
        cause = "a worker's stream is another one whenever it is read: it draws from a generator that nobody seeds"
        assert words[3].startswith(f"ValueError: {cause}, and whether the samples are the same")
        warning = f"{cause}; training goes on, with other draws on every worker and after a resume"
        assert words[4] == "" and words[5] == ([warning] if rank == 0 else [])
        assert words[6] == "ValueError: the dataset was split by node; permitted: the whole one, which the job deals"


def test_what_becomes_of_a_sample_does_not_depend_on_who_reads_its_part(pair, alone):
    (single,) = alone.run("torch_stream_cases:augmented_shards", num_workers=0)
    for num_workers in (1, 3):
        first, second = pair.run("torch_stream_cases:augmented_shards", num_workers=num_workers)
        assert len(single) == 487 and {**first, **second} == single


def test_a_loop_that_is_left_early_ends_its_epoch_on_request(pair, tmp_path, ledger):
    for result in pair.run(CASES + "early", folder=str(tmp_path)):
        assert result == {"epochs": [0, 1, 2], "where": (12, 2)}
    assert ledger(tmp_path / "run.jsonl") == (
        0, "Proven so far: no sample was used more than once, and no epoch is finished; epoch 0 was ended early, 160 "
           "of 480 samples used; epoch 1 was ended early, 160 of 480 samples used; epoch 2 is unfinished, 160 of 480 "
           "samples used.")  # fmt: skip


def test_every_dataset_has_a_ledger_and_a_log_of_its_own(pair, tmp_path, ledger):
    for result in pair.run(CASES + "two_datasets", folder=str(tmp_path)):
        assert result["places"] == result["again"] == (1, 120, 0, 80)
        assert result["whole"]
    assert ledger(tmp_path / "run.jsonl") == (
        0, "Proven: every sample of the 2 finished epochs was used exactly once.")  # fmt: skip
    assert ledger(tmp_path / "run-2.jsonl") == (
        0, "Proven: every sample of the finished epoch was used exactly once.")  # fmt: skip


def test_data_beside_others_and_loops_in_turns_are_proven(pair, tmp_path, ledger):
    for places in pair.run(CASES + "beside", folder=str(tmp_path)):
        # 13 steps on the first one, of which 4 + 7 had others beside them, the last of 7 samples
        assert places == [(0, 1, 4 * BATCH - 90, 0, 2 * BATCH), (1, 4, 10 * BATCH + 7 - 4 * 90, 1, 170)]
    assert ledger(tmp_path / "run.jsonl") == (
        0, "Proven: every sample of the finished epoch was used exactly once.")  # fmt: skip
    assert ledger(tmp_path / "run-2.jsonl") == (
        0, "Proven: every sample of the 4 finished epochs was used exactly once; epoch 4 is unfinished, 47 of 90 "
           "samples used.")  # fmt: skip
    assert ledger(tmp_path / "run-3.jsonl") == (
        0, "Proven: every sample of the finished epoch was used exactly once.")  # fmt: skip


def test_what_a_dataloader_would_be_told_is_answered(alone):
    (words,) = alone.run(CASES + "keywords")
    advice = (
        "'sampler': the order follows the job's seed= and the epoch, so that set_epoch() is not needed; leave it out",
        "'batch_size': shares change from step to step; job.batch_sizes has those of all workers, and",
        "'batch_sampler': the job deals the samples; say sampler= to job.loader() for an order or a choice of",
        "'x'",
    )
    for said, expected in zip(words.pop("attributes"), advice, strict=True):
        assert said.startswith(f"AttributeError: the loader of a job has no attribute {expected}")
    ignored = words.pop("not taken over")
    assert ignored.startswith("generator=<torch._C.Generator object at ")
    assert " of the DataLoader is not taken over; say seed= to the Job" in ignored
    assert ignored.endswith("timeout=7 of the DataLoader is not taken over; say timeout= to the Job")
    begins = {
        "shuffle": "loader() got shuffle=True; samples always come in a random order, by the job's seed=",
        "batch_size": "loader() got batch_size=8; the job deals global_batch= samples",
        "drop_last": "loader() got drop_last=True; say last_batch='drop' to the Job",
        "persistent_workers": "loader() got persistent_workers=True; loader processes always live",
        "device": "loader() got device='cpu'; say to_device=True",
        "sample": "loader() got sample=1; did you mean sampler?",
        "colour": "loader() got colour=1; permitted: collate, collate_fn, cost",
        "max_steps": "max_steps is 0; permitted: a whole number, 1 or more",
        "num_workers": "num_workers is -1; permitted: a whole number, 0 or more",
        "sampler": "sampler is a DistributedSampler; permitted: one for a single process",
        "DataLoader": "the DataLoader's batch_sampler is a Batches; permitted: none",
        "DataLoader's drop_last": "the DataLoader has drop_last=True; say last_batch='drop' to the Job",
        "DataLoader of batches": "the DataLoader has batch_size=None, so that it hands on batches that its dataset has",
    }
    assert words.keys() == begins.keys()
    for name, begin in begins.items():
        assert words[name].startswith(f"ValueError: {begin}"), words[name]


def test_a_cuda_graph_is_refused(alone):
    assert alone.run(CASES + "cuda_graphs") == [
        "ValueError: prepare() got a Sequential whose part '0' is a CUDA graph, which is of one batch size while those "
        "of a job change; permitted: modules as they are before make_graphed_callables()"
    ]


def test_a_habitual_backward_is_answered(alone):
    (words,) = alone.run(CASES + "habits")
    assert words["no batch"] == "Error: backward() without a batch of the loader"
    assert words["loss.backward"].startswith("Error: gradients were computed without the job; call job.backward(loss)")
    nothing = "Error: the loader went on to the next batch before job.backward(loss)"
    assert words["nothing"] == (
        f"{nothing}; for evaluation or a look at the data take a DataLoader of your own, to leave a batch out call "
        "job.backward(0.0 * loss), and behind a loop that was left before backward job.end_epoch()")  # fmt: skip
    assert words["evaluation"] == (
        f"{nothing}, with gradients disabled: each batch of it is a step; evaluate with a DataLoader of your own"
    )
    assert words["where"] == (0, 1)  # nothing of the epoch was used, so that end_epoch() has not ended it
    assert words["count"].startswith("ValueError: count= in one of several backward() for a batch")
    assert words["lengths"] == (
        "Error: a second backward() for a batch whose loader has count='lengths'; permitted: one backward() of the sum "
        "of the losses, or (loss * job.weight).backward() for each of them")  # fmt: skip
    assert words["weight"].startswith("Error: weight in accumulate() with count='lengths' of the loader: what the")
    for sync in ("local", "asp"):
        (said,) = alone.run(CASES + "habits_without_steps", sync=sync)
        assert said == [words["loss.backward"], words["nothing"]]


def test_a_model_that_is_not_the_wrapped_one_is_found_out(pair):
    for words in pair.run(CASES + "unused_wrapper"):
        assert words.startswith("Error: gradients are not averaged, since the model that prepare() returned")


@pytest.mark.parametrize("ranks", ["alone", "pair"])
def test_an_average_of_the_weights_is_saved_and_not_wrapped(ranks, request, tmp_path):
    for result in request.getfixturevalue(ranks).run(CASES + "averages", folder=str(tmp_path)):
        wrapped = "Sequential" if ranks == "alone" else "ElasticDataParallel"
        assert result == {"kinds": (wrapped, "Sequential", "Sequential"), "value": 0.25}


def test_losses_that_a_loop_scales_are_in_the_log(pair, tmp_path):
    true, _ = pair.run(CASES + "losses", folder=str(tmp_path))
    records = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    logged = [record["loss"] for record in records if record["type"] == "step"]
    assert logged == [pytest.approx(true[0], rel=1e-12), 7.0, pytest.approx(true[2], rel=1e-12)]


def test_a_weight_that_is_scaled_sees_the_losses_as_scaled():
    seen = []
    weight = LossWeight(4.0, seen.append)
    for scaled in (0.5 * weight, weight * 0.5, weight / 2, 1 * weight * 0.5):
        assert scaled * torch.tensor(3.0) == 6.0 and torch.tensor(3.0) * scaled == 6.0
    assert seen == [1.5] * 8


def test_losses_by_sample_are_logged_and_one_that_is_not_seen_is_told_once(alone):
    ((logged, true, said),) = alone.run(CASES + "unseen_losses")
    assert logged[0] == pytest.approx(true[0], rel=1e-12) and all(loss != loss for loss in logged[1:3])
    words = "is not in the log, since job.weight was not multiplied with it as it is; write loss * job.weight, or say"
    assert [words in one and "job.log_loss(loss)" in one for one in said] == [True] * 3  # once for each of the jobs


def test_unwrapping_finds_the_model_that_was_given(pair):
    for found, kind in pair.run(CASES + "unwrapped"):
        assert found == [True] * 4 and kind == "Sequential"


def test_jobs_loaders_decisions_and_records_say_what_they_are(alone):
    (words,) = alone.run(CASES + "texts")
    assert words[0] == "<Job: worker 0 of 1, step 2, epoch 0, batches [40], policy isochron>"
    assert words[1] == "<Loader of Points in a job of 1 workers: step 2, epoch 0>"
    assert words[2].startswith("<Decision for step 2: batches [40], ")
    assert words[3].startswith('StepRecord({"type":"step","step":1,"epoch":0,"position":40,')


def test_batches_are_moved_on_request(alone):
    assert alone.run("torch_device_cases:named_batch") == [("cpu", 40)]


def test_what_gloo_says_to_its_developers_is_left_out():
    said = "[/src/gloo/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1234. This may indicate a crash. GLHF!"
    assert reason_of(RuntimeError(said + "\nException raised from …")) == "Connection closed by peer [127.0.0.1]:1234"
    assert reason_of(RuntimeError()) == ""


def test_another_dataset_of_the_same_class_and_length_is_found_out(pair):
    begin = "ValueError: loader() got another Points with 480 samples, whose first or last one differs"
    for words in pair.run(CASES + "same_class_and_length"):
        assert words[0].startswith(begin) and words[1].startswith(begin) and "name=" in words[0]
        assert words[2:] == [""] * 5


def test_another_stream_of_the_same_class_is_found_out(pair):
    begin = "ValueError: loader() got another PointStream, which begins with other samples than the one before"
    for words in pair.run("torch_stream_cases:streams_of_a_class"):
        for number in (0, 3):
            assert words[number].startswith(begin) and "name=" in words[number], words
        assert [words[number] for number in (1, 2, 4, 5, 6, 7)] == [""] * 6, words


def test_samplers_that_draw_differently_are_found_out(pair):
    for words in pair.run(CASES + "drawn_by_samplers"):
        for number in (0, 2, 4):
            assert words[number].startswith("ValueError: the workers' samplers draw epoch 0 differently"), words
            assert words[number + 1] == ""


def test_collectives_of_others_are_waiting_as_long_as_a_job_lives(pair):
    for result in pair.run(CASES + "counted_collectives"):
        assert result == ([1, 2, 3, 4, 5, 6], False, True, True)


def test_batches_are_moved_and_pinned_on_request(alone):
    assert alone.run("torch_device_cases:moved") == [[("cpu", 0), ("meta", 0), ("cpu", 3)]]


def test_batches_come_where_prepare_has_moved_the_model(alone):
    assert alone.run("torch_device_cases:moved_by_prepare") == [["meta", "cpu", "cpu"]]


def test_a_copy_in_training_mode_is_an_average_too(pair):
    for kinds, words in pair.run(CASES + "trained_copies"):
        assert kinds == ["ElasticDataParallel", "Sequential", "ElasticDataParallel"]
        expected = "ValueError: prepare() got the optimizer of a Sequential that it had been given without"
        assert words.startswith(expected)


def test_files_of_a_webdataset_are_dealt(pair, tmp_path):
    pytest.importorskip("webdataset")
    results = pair.run("torch_stream_cases:web_files", folder=str(tmp_path))
    assert together(results) == list(range(96)) and all(one["complete"] for one in results)


def test_a_real_hugging_face_stream_is_dealt_and_one_that_is_split_is_refused(pair):
    pytest.importorskip("datasets")
    results = pair.run("torch_stream_cases:streaming_rows")
    assert together(results) == list(range(96)) and all(one["complete"] for one in results)
    for one in results:
        expected = "ValueError: the dataset was split by node; permitted: the whole one, which the job deals"
        assert one["words"] == expected
