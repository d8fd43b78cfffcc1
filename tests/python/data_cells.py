"""Cells of the matrix of loops: kinds of data, and loops that leave early, change their data, or go on."""

import copy
import os
import pathlib
import random

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, RandomSampler, Subset, WeightedRandomSampler

import isochron.torch as isochron
from loop_cells import (
    BATCH, OWN_ORDER, SIZE, STEPS, Checkpointed, Points, PointStream, accumulated, cell, error, plain, scaled_backward,
    sgd, sharded_model, whole,
)  # fmt: skip
from torch_failure_cases import listening


@cell("torch", "data", "random augmentation")
def augmented(run):
    plain(run, dataset=Points(noisy=True))


@cell("torch", "data", "two loader processes")
def processes(run):
    plain(run, dataset=Points(noisy=True), loader={"num_workers": 2})


def as_batch(samples):
    numbers, xs, ys = zip(*samples, strict=True)
    return torch.tensor(numbers), torch.stack(xs), torch.stack(ys)


@cell("torch", "data", "collate_fn")
def collated(run):
    plain(run, loader={"collate_fn": as_batch})


@cell("torch", "data", "DataLoader")
def data_loader(run):
    plain(run, dataset=DataLoader(Points(), batch_size=8, shuffle=True, collate_fn=as_batch, num_workers=1))


@cell("torch", "data", "DataLoader with a part of the samples", once="a sampler's draws")
def data_loader_of_a_part(run):
    points = Points()
    plain(run, dataset=DataLoader(points, batch_size=8, sampler=RandomSampler(points, num_samples=SIZE - 2 * BATCH)))
    assert run.jobs[-1].step == STEPS - 2


@cell("torch", "data", "DataLoader with a BatchSampler", once="a sampler's draws")
def data_loader_of_batches(run):
    part = RandomSampler(range(SIZE - 2 * BATCH))
    plain(run, dataset=DataLoader(Points(), batch_sampler=BatchSampler(part, 8, drop_last=False), collate_fn=as_batch))
    assert run.jobs[-1].step == STEPS - 2


@cell("torch", "data", "WeightedRandomSampler", once="a sampler's draws")
def weighted_sampler(run):
    weights = torch.arange(1, SIZE + 1, dtype=torch.float64)
    plain(run, loader={"sampler": WeightedRandomSampler(weights, SIZE)})


@cell("torch", "data", "Subset and ConcatDataset")
def subsets(run):
    parts = [Subset(Points(), range(0, SIZE, 2)), Points(SIZE // 2, first=SIZE)]
    plain(run, dataset=ConcatDataset(parts))


@cell("torch", "data", "to_device")
def on_device(run):
    plain(run, loader={"to_device": True})


@cell("torch", "data", "last batch dropped")
def dropped(run):
    plain(run, dataset=Points(SIZE + 7), last_batch="drop")


@cell("torch", "data", "last batch short")
def short_last(run):
    plain(run, dataset=Points(SIZE + 7))


@cell("torch", "stream", "one process")
def stream(run):
    plain(run, dataset=PointStream(SIZE + 7))


class CountedStream(PointStream):
    """Notes every reading."""

    def __init__(self, size, path):
        super().__init__(size)
        self.path = path

    def __iter__(self):
        with open(self.path, "a") as file:
            file.write("read\n")
        return super().__iter__()


@cell("torch", "stream", "a loader process")
def stream_processes(run):
    """One reads it, though more are asked for; another reading is that of its first samples, for comparison."""
    path = pathlib.Path(run.folder) / f"readings-{os.getpid()}"
    with listening() as said:
        plain(run, dataset=CountedStream(SIZE + 7, path), loader={"num_workers": 4})
    assert path.read_text().count("read") == 1
    warned = [one for one in said if one.startswith("num_workers is 4 for a stream, which one process")]
    assert len(warned) == (run.jobs[0].rank == 0)


@cell("torch", "stream", "random augmentation")
def stream_augmented(run):
    plain(run, dataset=PointStream(SIZE + 7, noisy=True), loader={"num_workers": 2 if run.slow else 0})


@cell("torch", "data", "lengths")
def dealt_by_cost(run):
    plain(run, dataset=Points(SIZE + 7), loader={"lengths": lambda index: 1 + index % 7, "num_workers": 1})


@cell("torch", "stream", "accumulate")
def stream_accumulated(run):
    accumulated(run, PointStream(SIZE + 7))


@cell("torch", "stream", "two losses")
def stream_twice(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(PointStream()):
        run.compute(number)
        job.backward(error(model, x, y))
        job.backward(model(x).square().mean() * 0.1)
        optimizer.step()
        optimizer.zero_grad()


def read_part(part, **more):
    points = Points(SIZE + 7, **more)
    return (points[index] for index in range(part, len(points), 24))


@cell("torch", "stream", "Shards", parity=OWN_ORDER)
def shards(run):
    plain(run, dataset=isochron.Shards(range(24), read_part))


@cell("torch", "stream", "Shards, a new object each epoch", parity=OWN_ORDER)
def new_shards(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for epoch in job.epochs(2):
        assert epoch < 2 and job.step < 40
        train(run, job, model, optimizer, job.loader(isochron.Shards(range(24), read_part)), epoch=epoch)
    assert job.epoch == 2


@cell("torch", "stream", "Shards, two loader processes", parity=OWN_ORDER, pace=4.0)
def shards_processes(run):
    """They read two parts at a time."""
    at_once = []

    def note(record):
        at_once.append(len(run.jobs[0]._source._reading))
        run.note(record)

    plain(run, dataset=isochron.Shards(range(24), read_part), loader={"num_workers": 2}, on_step=note)
    assert max(at_once) == 2


def web_shards(folder, size, parts):
    """A WebDataset, whose files the first process writes."""
    import webdataset

    def read(path):
        samples = webdataset.WebDataset(path, shardshuffle=False, nodesplitter=None).decode()
        return samples.map(lambda sample: points[int(sample["cls"])])

    points = Points(size)
    paths = [f"{folder}/part-{part}.tar" for part in range(parts)]
    grouped = torch.distributed.is_initialized()
    if not grouped or torch.distributed.get_rank() == 0:
        for part, path in enumerate(paths):
            with webdataset.TarWriter(path) as file:
                for number in range(part, size, parts):
                    file.write({"__key__": f"{number:04}", "cls": number})
    if grouped:
        torch.distributed.barrier()
    return isochron.Shards(paths, read)


@cell("torch", "stream", "WebDataset", parity=OWN_ORDER, needs="webdataset", pace=8.0)
def web_dataset(run):
    plain(run, dataset=web_shards(run.folder, SIZE + 7, 24), loader={"num_workers": 2})


def rows(shard, size, parts):
    points = Points(size)
    for part in shard:
        for number in range(part, size, parts):
            yield {"number": number, "x": points[number][1].tolist(), "y": points[number][2].tolist()}


def as_points(samples):
    return [torch.tensor([sample[name] for sample in samples], dtype=kind)
            for name, kind in (("number", torch.int64), ("x", torch.float64), ("y", torch.float64))]  # fmt: skip


def hugging_face_stream():
    from datasets import IterableDataset as Stream

    return Stream.from_generator(rows, gen_kwargs={"shard": list(range(24)), "size": SIZE + 7, "parts": 24})


@cell("torch", "stream", "Hugging Face stream", needs="datasets", pace=4.0)
def hugging_face(run):
    with listening() as said:
        plain(run, dataset=hugging_face_stream().shuffle(seed=3, buffer_size=50), loader={"collate_fn": as_points})
    told = [one for one in said if one.startswith("the stream has 24 parts, of which every worker reads all; with")]
    assert len(told) == (run.slow and run.jobs[0].rank == 0)


@cell("torch", "stream", "Hugging Face stream in Shards", parity=OWN_ORDER, needs="datasets", pace=4.0)
def hugging_face_shards(run):
    plain(run, dataset=isochron.Shards.of(hugging_face_stream()), loader={"collate_fn": as_points, "num_workers": 2})


class Balanced:
    """As many draws of one class as of the other, with the generator that everybody uses."""

    def __init__(self, points):
        classes = points.x[:, 0] > 0.0
        self.classes = [torch.nonzero(classes == one).flatten().tolist() for one in (False, True)]

    def __len__(self):
        return SIZE

    def __iter__(self):
        return (random.choice(self.classes[turn % 2]) for turn in range(SIZE))


@cell("torch", "data", "a class-balanced sampler", once="a sampler's draws")
def balanced_sampler(run):
    points = Points()
    plain(run, dataset=points, loader={"sampler": Balanced(points)})


# PyTorch: loops that leave early, change their data, or go on.


def train(run, job, model, optimizer, loader, steps=None, epoch=None, backward=isochron.Job.backward):
    """As far as `steps`."""
    for done, (number, x, y) in enumerate(loader, 1):
        run.compute(number, job.epoch if epoch is None else epoch)
        backward(job, error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
        if done == steps:
            break


def left_early(run, model, **options):
    job = run.job()
    model, optimizer = job.prepare(model, sgd(model))
    loader = job.loader(Points())
    epochs = []
    for epoch in job.epochs(3):
        epochs.append(epoch)
        train(run, job, model, optimizer, loader, steps=5, **options)
        if epoch != 1:
            next(iter(loader))  # a batch that is not used
        job.end_epoch()
    assert epochs == [0, 1, 2] and job.step == 15


@cell("torch", "early exit", "end_epoch")
def early_exit(run):
    left_early(run, run.model())


@cell("torch", "early exit", "job.weight")
def early_exit_by_weight(run):
    left_early(run, run.model(), backward=scaled_backward)


@cell("torch", "early exit", "job.weight, FSDP2")
def early_exit_by_weight_sharded(run):
    model = sharded_model(run)
    left_early(run, model, backward=scaled_backward)
    run.modules = [whole(model)]


@cell("torch", "early exit", "max_steps")
def most_steps(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    loader = job.loader(Points(), max_steps=5)
    assert len(loader) == 5
    for epoch in job.epochs(3):
        train(run, job, model, optimizer, loader, epoch=epoch)
    assert job.step == 15


@cell("torch", "early exit", "break and go on")
def left_and_back(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    loader = job.loader(Points())
    for number, x, y in loader:
        run.compute(number)
        job.backward(error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
        if job.step == 4:
            break
    train(run, job, model, optimizer, loader)
    assert job.step == STEPS and job.ledger.complete


@cell("torch", "two datasets", "one after the other")
def pretrained(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    before, after = job.loader(Points(SIZE // 2)), job.loader(Points(SIZE // 2 + 20, first=SIZE))
    for epoch in before.epochs(2):
        train(run, job, model, optimizer, before, epoch=epoch)
    for epoch in after.epochs(1):
        train(run, job, model, optimizer, after, epoch=epoch)
    assert before.ledger.complete and after.ledger.complete
    assert (before.epoch, after.epoch) == (2, 1)


def after_a_break(run, backward):
    """On to other data from a step that has its gradients."""
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    first, second = job.loader(Points()), job.loader(Points(SIZE // 2, first=SIZE))
    train(run, job, model, optimizer, first, steps=STEPS // 2, epoch=0, backward=backward)
    train(run, job, model, optimizer, second, epoch=0, backward=backward)
    train(run, job, model, optimizer, first, steps=1, epoch=0, backward=backward)
    third = job.loader(Points(SIZE // 4, first=2 * SIZE))
    train(run, job, model, optimizer, third, epoch=0, backward=backward)
    assert (first.ledger.used, second.epoch, third.epoch) == (SIZE // 2 + SIZE // STEPS, 1, 1)


@cell("torch", "two datasets", "after a break")
def after_a_break_by_job(run):
    after_a_break(run, isochron.Job.backward)


@cell("torch", "two datasets", "after a break, job.weight")
def after_a_break_by_weight(run):
    after_a_break(run, scaled_backward)


def in_turns(run, backward):
    """A step on the one, and a step on the other."""
    job = run.job(log=f"{run.folder}/run.jsonl")
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    first, second = job.loader(Points()), job.loader(Points(SIZE // 2, first=SIZE))
    others = iter(second)
    for number, x, y in first:
        assert number.max() < SIZE
        run.compute(number)
        backward(job, error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
        number, x, y = next(others, (None, None, None))
        if number is not None:
            assert number.min() >= SIZE
            run.compute(number)
            backward(job, error(model, x, -y))
            optimizer.step()
            optimizer.zero_grad()
    assert first.ledger.complete and second.ledger.complete


@cell("torch", "two datasets", "steps in turns")
def in_turns_by_job(run):
    in_turns(run, isochron.Job.backward)


@cell("torch", "two datasets", "steps in turns, job.weight")
def in_turns_by_weight(run):
    in_turns(run, scaled_backward)


@cell("torch", "two datasets", "in one step", once="in every epoch of its own")
def beside(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    first, second = job.loader(Points()), job.loader(Points(SIZE // 2 - 10, first=SIZE))
    for (number, x, y), (other, u, _) in zip(first, second, strict=False):
        run.compute(number)
        run.use(other, -1)
        job.backward(error(model, x, y) + (model(u) - model(-u)).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    assert first.ledger.complete and not second.ledger.duplicates
    assert (second.epoch, second.ledger.used) == divmod(SIZE, SIZE // 2 - 10)  # of the third epoch


@cell("torch", "two datasets", "a new buffer each iteration")
def new_buffers(run):
    """What was gathered since, under one name."""
    iterations(run, lambda iteration: (Points(SIZE // 4, first=iteration * SIZE), {}))


@cell("torch", "two datasets", "draws of a buffer that grows")
def growing_buffer(run):
    """As many of it in every iteration."""

    def gather(iteration):
        buffer = Points(SIZE // 4 + 20 * iteration, first=iteration * SIZE)
        return buffer, {"sampler": RandomSampler(buffer, num_samples=SIZE // 4)}

    iterations(run, gather)
    words = r"loader\(\) with name='buffer' got 121 samples an epoch in place of 120; permitted: as many, which a"
    with pytest.raises(ValueError, match=words):
        run.jobs[0].loader(Points(SIZE // 4 + 1), name="buffer")


def iterations(run, gather):
    job = run.job(log=f"{run.folder}/run.jsonl")
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for iteration in range(4):
        buffer, options = gather(iteration)
        loader = job.loader(buffer, name="buffer", **options)
        train(run, job, model, optimizer, loader, epoch=iteration)
        assert loader.ledger.complete and job.epoch == iteration + 1


@cell("torch", "two datasets", "a new object each epoch")
def new_objects(run):
    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for epoch in job.epochs(2):
        train(run, job, model, optimizer, job.loader(Points(SIZE // 2)), epoch=epoch)
    assert job.step == STEPS


def resumed(run, order, dataset=Points):
    """Half of the epoch, and the rest in a new job, whose calls come in any order."""
    path, log = f"{run.folder}/job.pt", f"{run.folder}/run.jsonl"
    model, data = run.model(), dataset()
    for half in range(2):
        job = run.job(log=log)
        again = copy.deepcopy(model)
        optimizer = sgd(again)
        loader = job.loader(data) if order == "loader first" else None
        wrapped, optimizer = job.prepare(again, optimizer)
        if half == 1:
            job.restore(path)
        loader = job.loader(data) if loader is None else loader
        train(run, job, wrapped, optimizer, loader, steps=STEPS // 2 if half == 0 else None, epoch=0)
        if half == 0:
            job.save(path)
            job.close()
    run.modules = [again]


@cell("torch", "resume", "loader before restore")
def loader_first(run):
    resumed(run, "loader first")


@cell("torch", "resume", "restore before loader")
def restore_first(run):
    resumed(run, "restore first")


@cell("torch", "resume", "stream")
def stream_resumed(run):
    resumed(run, "loader first", PointStream)


@cell("torch", "one backward", "evaluation in between")
def evaluated(run):
    job = run.job(log=f"{run.folder}/run.jsonl")
    model = run.model(norm=True)
    model, optimizer = job.prepare(model, sgd(model))
    points = Points()
    for number, x, y in job.loader(points):
        run.compute(number)
        job.backward(error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
        if job.step % 4 == 3:
            model.eval()
            with torch.no_grad():
                mine = error(model, points.x[job.rank :: job.size], points.x[job.rank :: job.size, :1]).item()
            job.note_evaluation(loss=job.sum([mine])[0])
            model.train()


def with_dropout(run):
    """What is dropped of a sample depends on the sample: it is the same in one process, which computes them all."""
    torch.manual_seed(4)
    first, second = isochron.Dropout(0.4), isochron.Dropout(0.3)
    layers = nn.Linear(2, 8), nn.Tanh(), first, nn.Linear(8, 8), second, nn.Linear(8, 1)
    run.modules.append(nn.Sequential(*layers).double())
    return run.modules[-1]


@cell("torch", "dropout by sample", "one backward")
def dropout(run):
    plain(run, model=with_dropout(run))


@cell("torch", "dropout by sample", "activation checkpointing")
def dropout_checkpointed(run):
    plain(run, model=Checkpointed(with_dropout(run), reentrant=False))


@cell("torch", "dropout by sample", "stream")
def dropout_stream(run):
    plain(run, dataset=PointStream(SIZE + 7), model=with_dropout(run))


@cell("torch", "dropout by sample", "micro-batches")
def dropout_divided(run):
    job = run.job(micro_batch=7)
    model = with_dropout(run)
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        job.backward(lambda x, y: error(model, x, y), x, y)
        optimizer.step()
        optimizer.zero_grad()
