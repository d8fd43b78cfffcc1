"""What the processes of test_torch_habits.py do."""

import copy
import os
import signal
import types

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

import isochron.torch as isochron
from data_cells import read_part
from loop_cells import BATCH, Points, PointStream, error, sgd, small_model


def begin(restore=None, loader_first=True, dataset=None, **options):
    """Job, model, optimizer and loader, in the order of the project's examples or in the other one."""
    job = isochron.Job(global_batch=BATCH, **options)
    model = small_model()
    optimizer = sgd(model)
    dataset = Points() if dataset is None else dataset
    loader = job.loader(dataset) if loader_first else None
    model, optimizer = job.prepare(model, optimizer)
    if restore is not None:
        job.restore(restore)
    return job, model, optimizer, loader if loader_first else job.loader(dataset)


def steps(job, model, optimizer, loader, most=None):
    """The numbers of the samples that this worker used."""
    seen = []
    for done, (number, x, y) in enumerate(loader, 1):
        if not job._share.stand_in:
            seen += number.tolist()
        job.backward(error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
        if done == most:
            break
    return seen


def half_and_rest(folder, loader_first, kind):
    dataset = {"map": Points, "stream": PointStream}[kind](487)
    job, *rest = begin(log=f"{folder}/run.jsonl", loader_first=loader_first, dataset=dataset)
    seen = steps(job, *rest, most=5)
    job.save(f"{folder}/job.pt")
    job.close()
    job, *rest = begin(f"{folder}/job.pt", log=f"{folder}/run.jsonl", loader_first=loader_first, dataset=dataset)
    seen += steps(job, *rest)
    complete = job.ledger.complete
    job.close()
    return {"seen": seen, "complete": complete}


def run_again(folder):
    """Two runs with one log, the second of which restores nothing."""
    for _ in range(2):
        job, *rest = begin(log=f"{folder}/run.jsonl")
        steps(job, *rest)
        job.close()


def message_of(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception as trouble:
        return f"{type(trouble).__name__}: {trouble}"
    return ""


def unwritable(path):
    return message_of(isochron.Job, BATCH, log=path)


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


def shards_half_and_rest(folder, size):
    """Some steps of a stream in parts, and the rest after a restart."""
    dataset = isochron.Shards(range(24), read_part)
    job, *rest = begin(log=f"{folder}/run.jsonl", dataset=dataset)
    seen = steps(job, *rest, most=7)
    job.save(f"{folder}/job.pt")
    job.close()
    return {"seen": seen}


def shards_rest(folder):
    job, *rest = begin(f"{folder}/job.pt", log=f"{folder}/run.jsonl", dataset=isochron.Shards(range(24), read_part))
    seen = steps(job, *rest)
    complete = job.ledger.complete
    job.close()
    return {"seen": seen, "complete": complete}


def shards_lost(folder, victim):
    """One of the workers is lost in step 5; what each used is in its file."""
    job, model, optimizer, loader = begin(dataset=isochron.Shards(range(24), read_part))
    rank = dist.get_rank()
    with open(f"{folder}/used.{rank}", "w", buffering=1) as file:
        for number, x, y in loader:
            if job.step == 5 and rank == victim:
                os.kill(os.getpid(), signal.SIGKILL)
            used = [] if job._share.stand_in else number.tolist()
            if job.backward(error(model, x, y)):
                optimizer.step()
                optimizer.zero_grad()
                file.writelines(f"{one}\n" for one in used)
    complete, size = job.ledger.complete, job.size
    job.close()
    return complete, size


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


class Unlike(PointStream):
    """A stream that is another one on every worker."""

    def __init__(self, how):
        super().__init__(480)
        self.how = how

    def __iter__(self):
        rank = dist.get_rank()
        if self.how == "part":
            return (self.points[index] for index in range(rank, 480, 2))
        if self.how == "order":
            return (self.points[index] for index in torch.randperm(480, generator=torch.Generator().manual_seed(rank)))
        return ((number, x * (1 + 1e-7 * rank), y) for number, x, y in super().__iter__())  # another machine


def unlike_streams():
    """What is said of each."""
    words = []
    for how in ("part", "order", "rounding"):
        job, *rest = begin(dataset=Unlike(how))
        words.append(message_of(steps, job, *rest))
        job.close()
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
    return {"seen": seen, "words": words}


def graphed(model, name):
    """What make_graphed_callables() leaves of a part, by its own function, without the GPU that it captures on."""
    graphs = torch.cuda.graphs
    named = [one for one in graphs.make_graphed_callables.__code__.co_consts if getattr(one, "co_name", "") == name]
    part = model[0]
    part.forward = types.FunctionType(named[0], vars(graphs))(part, part.training, part.forward, part.forward)
    return model


def cuda_graphs():
    job = isochron.Job(global_batch=BATCH)
    words = message_of(job.prepare, graphed(nn.Sequential(nn.Linear(2, 2)), "make_graphed_forward"))
    job.close()
    return words


def early(folder):
    job, model, optimizer, loader = begin(log=f"{folder}/run.jsonl")
    epochs = []
    for epoch in job.epochs(3):
        epochs.append(epoch)
        steps(job, model, optimizer, loader, most=4)
        if epoch < 2:
            job.end_epoch()
            job.end_epoch()  # nothing is left to end
        else:
            break
    job.finish_step()
    where = job.step, job.epoch
    job.close()
    return {"epochs": epochs, "where": where}


def two_datasets(folder, names=(None, None)):
    """Pre-training, fine-tuning, and back; then a job that goes on."""
    job = isochron.Job(global_batch=BATCH, log=f"{folder}/run.jsonl")
    model = small_model()
    model, optimizer = job.prepare(model, sgd(model))
    first, second = (job.loader(Points(size), name=name) for size, name in zip((200, 240), names, strict=True))
    steps(job, model, optimizer, first)
    steps(job, model, optimizer, second, most=2)
    steps(job, model, optimizer, first, most=3)
    job.save(f"{folder}/job.pt")
    places = (first.epoch, first.ledger.used, second.epoch, second.ledger.used)
    job.close()
    job = isochron.Job(global_batch=BATCH, log=f"{folder}/run.jsonl")
    model = small_model()
    model, optimizer = job.prepare(model, sgd(model))
    first = job.loader(Points(200), name=names[0])
    job.restore(f"{folder}/job.pt")
    second = job.loader(Points(240), name=names[1])
    again = (first.epoch, first.ledger.used, second.epoch, second.ledger.used)
    steps(job, model, optimizer, second)
    steps(job, model, optimizer, first)
    whole = first.ledger.complete and second.ledger.complete
    job.close()
    return {"places": places, "again": again, "whole": whole}


def keywords():
    job = isochron.Job(global_batch=BATCH)
    given = {"shuffle": True, "batch_size": 8, "drop_last": True, "persistent_workers": True, "device": "cpu",
             "sample": 1, "colour": 1, "max_steps": 0, "num_workers": -1,
             "sampler": DistributedSampler(Points(), 1, 0)}  # fmt: skip
    words = {name: message_of(job.loader, Points(), **{name: value}) for name, value in given.items()}
    batches = DataLoader(Points(), batch_sampler=Batches())
    words["DataLoader"] = message_of(job.loader, batches)
    dropping = DataLoader(Points(487), batch_size=8, drop_last=True)
    words["DataLoader's drop_last"] = message_of(job.loader, dropping)
    job.close()
    job = isochron.Job(global_batch=BATCH, last_batch="drop")
    assert len(job.loader(dropping)) == 487 // BATCH
    job.close()
    return words


class Batches:
    def __iter__(self):
        return iter([[0]])

    def __len__(self):
        return 1


def habits():
    """loss.backward(), no backward() at all, backward() without a batch, and twice with count=."""
    words = {}
    job, model, optimizer, loader = begin()
    words["no batch"] = message_of(job.backward, torch.ones((), requires_grad=True))
    for _, x, y in loader:
        error(model, x, y).backward()
        break
    words["loss.backward"] = message_of(next, iter(loader))
    job._close_step()
    job._abandon()
    next(iter(loader))
    words["nothing"] = message_of(next, iter(loader))
    job._close_step()
    job._abandon()
    _, x, y = next(iter(loader))
    job.backward(error(model, x, y), count=3)
    words["count"] = message_of(job.backward, error(model, x, y), count=3)
    job.close()
    return words


def unused_wrapper():
    job = isochron.Job(global_batch=BATCH)
    model = small_model()
    optimizer = sgd(model)
    job.prepare(model, optimizer)
    return message_of(steps, job, model, optimizer, job.loader(Points()))


def averages(folder):
    job = isochron.Job(global_batch=BATCH)
    model = small_model()
    average = copy.deepcopy(model).eval()
    optimizer = sgd(model)
    model, average, optimizer = job.prepare(model, average, optimizer)
    with torch.no_grad():
        for parameter in average.parameters():
            parameter.fill_(0.25)
    job.save(f"{folder}/job.pt")
    with torch.no_grad():
        for parameter in average.parameters():
            parameter.zero_()
    job.restore(f"{folder}/job.pt")
    kinds = type(model).__name__, type(average).__name__, type(job.unwrap(model)).__name__
    value = next(average.parameters())[0, 0].item()
    job.close()
    return {"kinds": kinds, "value": value}


def losses(folder):
    """What the log says of losses that a loop scales by itself, or says."""
    job, model, optimizer, loader = begin(log=f"{folder}/run.jsonl")
    true = []
    for number, (_, x, y) in enumerate(loader):
        loss = error(model, x, y)
        (loss * job.weight).backward()
        if number == 1:
            job.log_loss(7.0)
        optimizer.step()
        optimizer.zero_grad()
        true.append(job.sum([loss.item() * job._my_count / BATCH])[0])
        if number == 2:
            break
    job.close()
    return true


def texts():
    job, model, optimizer, loader = begin()
    steps(job, model, optimizer, loader, most=2)
    job.finish_step()
    words = [repr(job), repr(loader), repr(job.decision), repr(job.last_step)]
    job.close()
    job.close()
    return words


def named_batch():
    job = isochron.Job(global_batch=BATCH)
    model = nn.Linear(2, 1).double()
    job.prepare(model)
    number, x, y = next(iter(job.loader(Points(), to_device=True)))
    device = x.device.type
    job._abandon()
    job._close_step()
    job.close()
    return device, len(number)
