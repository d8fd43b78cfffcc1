"""What the ranks of the tests of streams do, as people write them; torch_habit_cases.py has the other habits."""

import random

import torch
import torch.distributed as dist

import isochron.torch as isochron
from data_cells import as_points, read_part, rows, web_shards
from loop_cells import BATCH, PointStream, error, sgd, small_model
from torch_failure_cases import listening
from torch_habit_cases import begin, message_of, steps


class Unlike(PointStream):
    """A stream that is another one on every worker."""

    def __init__(self, how):
        super().__init__(480)
        self.how = how

    def __iter__(self):
        rank = dist.get_rank()
        if self.how == "part":
            return (self.points[index] for index in range(rank, 480, 2))
        if self.how == "unseeded order":
            return (self.points[index] for index in random.Random().sample(range(480), 480))
        if self.how == "unseeded":
            return ((number, x + random.Random().random(), y) for number, x, y in super().__iter__())
        if self.how == "order":
            return (self.points[index] for index in torch.randperm(480, generator=torch.Generator().manual_seed(rank)))
        return ((number, x * (1 + 1e-7 * rank), y) for number, x, y in super().__iter__())  # another machine


def unlike_streams():
    """What is said of each."""
    words = []
    for how in ("part", "order", "rounding", "unseeded order", "unseeded"):
        job, *rest = begin(dataset=Unlike(how))
        with listening() as said:
            words.append(message_of(steps, job, *rest))
        job.close()
    words.append([one for one in said if "stream" in one])
    split = PointStream()
    split._distributed = object()
    job = isochron.Job(global_batch=BATCH)
    words.append(message_of(job.loader, split))
    job.close()
    return words


class Streaming:
    """As Hugging Face's streaming datasets are asked."""

    num_shards = 24

    def shard(self, num_shards, index):
        assert num_shards == self.num_shards
        return read_part(index)

    def __iter__(self):
        return (sample for part in range(24) for sample in read_part(part))


def streaming_dataset():
    job, *rest = begin(dataset=isochron.Shards.of(Streaming()))
    seen = steps(job, *rest)
    split = Streaming()
    split._distributed = object()
    words = [message_of(isochron.Shards.of, split), message_of(isochron.Shards.of, [1]),
             message_of(isochron.Shards, [], read_part)]  # fmt: skip
    job.close()
    job = isochron.Job(global_batch=BATCH)
    with listening() as said:
        for _ in range(2):
            job.loader(Streaming())
    job.close()
    return {"seen": seen, "words": words, "hints": [one for one in said if "parts" in one]}


def streams_of_a_class():
    """Another stream of one class, before and behind the first step; equal ones, also with random augmentation; one
    that begins anew whenever it is read, and one that can be read once."""
    words = []
    for taken in (0, 1):
        for first, second in ((PointStream(), PointStream(first=7)), (PointStream(), PointStream()),
                              (PointStream(noisy=True), PointStream(noisy=True))):  # fmt: skip
            job, model, optimizer, loader = begin(dataset=first)
            if taken:
                steps(job, model, optimizer, loader, most=taken)
            words.append(message_of(job.loader, second))
            numbers = steps(job, model, optimizer, loader)
            assert set(numbers) <= set(range(480)) and job.ledger.complete
            job.close()
    job, *rest = begin(dataset=PointStream())
    words.append(message_of(job.loader, PointStream(first=7), name="fine"))
    assert len(job._datasets) == 2
    job.close()
    job, model, optimizer, _ = begin(dataset=Once())
    words.append(message_of(job.loader, second := Once()))
    assert len(steps(job, model, optimizer, job.loader(second))) > 0 and job.ledger.used == 480
    job.close()
    return words


class Once(PointStream):
    """A stream that can be read once."""

    def __init__(self):
        super().__init__()
        self.samples = super().__iter__()

    def __iter__(self):
        return self.samples


def stream(folder, num_workers, size=103):
    job = isochron.Job(global_batch=20, log=f"{folder}/run.jsonl")
    model = small_model()
    model, optimizer = job.prepare(model, sgd(model))
    seen = []
    for _ in job.epochs(2):
        seen.append(steps(job, model, optimizer, job.loader(PointStream(size), num_workers=num_workers)))
    complete, epoch = job.ledger.complete, job.epoch
    job.close()
    return {"seen": seen, "complete": complete, "epoch": epoch}


def noisy_part(part):
    return read_part(part, noisy=True)


def augmented_shards(num_workers):
    """What became of every sample, by its number."""
    job, model, optimizer, loader = begin(dataset=isochron.Shards(range(24), noisy_part))
    loader = job.loader(loader.dataset, num_workers=num_workers)
    seen = {}
    for number, x, y in loader:
        if not job._share.stand_in:
            seen |= dict(zip(number.tolist(), x.tolist(), strict=True))
        job.backward(error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
    job.close()
    return seen


def web_files(folder):
    """Six small files of a WebDataset, of which each worker reads its own."""
    job, *rest = begin(dataset=web_shards(folder, 96, 6))
    seen = steps(job, *rest)
    complete = job.ledger.complete
    job.close()
    return {"seen": seen, "complete": complete}


def streaming_rows():
    """A streaming dataset of Hugging Face's package, and what it says of one that is split."""
    from datasets import IterableDataset
    from datasets.distributed import split_dataset_by_node

    whole = IterableDataset.from_generator(rows, gen_kwargs={"shard": list(range(6)), "size": 96, "parts": 6})
    job = isochron.Job(global_batch=BATCH)
    model = small_model()
    model, optimizer = job.prepare(model, sgd(model))
    seen = steps(job, model, optimizer, job.loader(isochron.Shards.of(whole), collate_fn=as_points))
    complete = job.ledger.complete
    job.close()
    split = split_dataset_by_node(whole, dist.get_rank(), dist.get_world_size())
    return {"seen": seen, "complete": complete, "words": message_of(isochron.Shards.of, split)}
