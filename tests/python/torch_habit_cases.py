"""What the processes of test_torch_habits.py do."""

import copy
import gc
import logging
import os
import random
import signal
import types
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

import isochron.torch as isochron
from isochron.torch import collectives
from data_cells import read_part
from loop_cells import BATCH, Points, PointStream, error, sgd, small_model
from torch_failure_cases import listening


def begin(restore=None, order="loader prepare restore", dataset=None, **options):
    """Job, model, optimizer and loader, in the order of the project's examples or in another one."""
    job = isochron.Job(global_batch=BATCH, **options)
    model = small_model()
    optimizer = sgd(model)
    dataset = Points() if dataset is None else dataset
    loader = None
    for call in order.split():
        if call == "loader":
            loader = job.loader(dataset)
        elif call == "prepare":
            model, optimizer = job.prepare(model, optimizer)
        elif restore is not None:
            job.restore(restore)
    return job, model, optimizer, loader


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


def what_stays(sync):
    """Threads of this process after one job and after two, and whether the models of both are there."""
    threads, models = [], []
    for _ in range(3):
        gc.collect()
        threads.append(len(os.listdir("/proc/self/task")))
        job, model, optimizer, loader = begin(sync=sync)
        for _, x, y in loader:
            job.backward(error(model, x, y))
            optimizer.step()
            optimizer.zero_grad()
        models.append(weakref.ref(model))
        job.close()
        del job, model, optimizer, loader
    return threads[1:], [one() is not None for one in models[:-1]]


def half_and_rest(folder, order, kind):
    dataset = {"map": Points, "stream": PointStream}[kind](487)
    options = {"log": f"{folder}/run.jsonl", "order": order, "dataset": dataset}
    job, model, *rest = begin(**options)
    seen = steps(job, model, *rest, most=5)
    job.save(f"{folder}/job.pt")
    saved = [one.detach().clone() for one in model.parameters()]
    job.close()
    job, model, *rest = begin(f"{folder}/job.pt", **options)
    whole = all(map(torch.equal, saved, model.parameters()))
    seen += steps(job, model, *rest)
    complete = job.ledger.complete
    job.close()
    return {"seen": seen, "complete": complete, "whole": whole}


def restored_before_prepare(folder):
    """What is said where prepare() is given less, or more, than was saved."""
    job, model, optimizer, loader = begin()
    steps(job, model, optimizer, loader, most=2)
    job.save(f"{folder}/job.pt")
    job.close()
    job = isochron.Job(global_batch=BATCH)
    job.restore(f"{folder}/job.pt")
    model = job.prepare(small_model())
    words = [message_of(next, iter(job.loader(Points()))), message_of(job.save, f"{folder}/other.pt")]
    words.append(message_of(job.prepare, small_model(), sgd(model)))
    job.close()
    return words


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


def shards_half(folder, num_workers):
    """Some steps of a stream in parts; the rest is for after a restart."""
    job, model, optimizer, loader = begin(log=f"{folder}/run.jsonl", dataset=isochron.Shards(range(24), read_part))
    seen = steps(job, model, optimizer, job.loader(loader.dataset, num_workers=num_workers), most=7)
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


def lost_between_passes(folder, victim):
    """Over one forward pass, of which DDP averages the first; what each worker used is in its file."""
    job, model, optimizer, loader = begin(dataset=Points(280))
    rank = dist.get_rank()
    with open(f"{folder}/used.{rank}", "w", buffering=1) as file:
        for number, x, y in loader:
            used = [] if job._share.stand_in else number.tolist()
            value = model(x)
            whole = job.backward((value - y).square().mean(), retain_graph=True)
            if job.step == 3 and rank == victim:
                os.kill(os.getpid(), signal.SIGKILL)
            if whole and job.backward(value.square().mean()):
                optimizer.step()
                optimizer.zero_grad()
                file.writelines(f"{one}\n" for one in used)
    result = job.ledger.complete, job.size, [one.tolist() for one in model.parameters()]
    job.close()
    return result


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


def beside(folder):
    """A second loader beside the first, not in every step, half by a job and the rest by another one; and a third whose
    loop takes turns with the first."""
    places = []
    for half in range(2):
        job = isochron.Job(global_batch=BATCH, log=f"{folder}/run.jsonl")
        model = small_model()
        model, optimizer = job.prepare(model, sgd(model))
        first, second, third = (job.loader(Points(size), name=str(size)) for size in (487, 90, 170))
        if half == 1:
            job.restore(f"{folder}/job.pt")
        others, turns = iter(second), iter(third)
        for done, (_, x, y) in enumerate(first):
            loss = error(model, x, y)
            if done != 2:
                loss = loss + model(next(others)[1]).square().mean()
            job.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if done % 3 == 1:
                _, x, y = next(turns)
                job.backward(error(model, x, y))
                optimizer.step()
                optimizer.zero_grad()
            if half == 0 and done == 4:
                break
        if half == 0:
            job.save(f"{folder}/job.pt")
        job.finish_step()
        places.append((first.epoch, second.epoch, second.ledger.used, third.epoch, third.ledger.used))
        job.close()
    return places


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
    for kind in (Points, PointStream):
        ready = message_of(job.loader, DataLoader(kind(), batch_size=None))
        assert words.setdefault("DataLoader of batches", ready) == ready
    job.close()
    job = isochron.Job(global_batch=BATCH, last_batch="drop")
    assert len(job.loader(dropping)) == 487 // BATCH
    with listening() as said:
        loader = job.loader(DataLoader(Points(), generator=torch.Generator(), num_workers=1, timeout=7))
    words["not taken over"] = "".join(said)
    names = "sampler", "batch_size", "batch_sampler", "x"
    words["attributes"] = [message_of(getattr, loader, name) for name in names]
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
    with torch.no_grad():
        words["evaluation"] = message_of(next, iter(loader))
    job.end_epoch()
    steps(job, model, optimizer, loader, most=1)
    job.finish_step()
    words["where"] = job.epoch, job.step
    _, x, y = next(iter(loader))
    job.backward(error(model, x, y), count=3)
    words["count"] = message_of(job.backward, error(model, x, y), count=3)
    job.close()
    job = isochron.Job(global_batch=BATCH)
    model = small_model()
    model, optimizer = job.prepare(model, sgd(model))
    loader = job.loader(Points(), lengths=[2] * len(Points()), count="lengths")
    _, x, y = next(iter(loader))
    job.backward(error(model, x, y))
    words["lengths"] = message_of(job.backward, error(model, x, y))
    optimizer.step()
    next(iter(loader))
    with job.accumulate(2):
        words["weight"] = message_of(lambda: job.weight)
        job.backward(error(model, x, y))
    job.close()
    return words


def habits_without_steps(sync):
    """The first two of these where workers are not in step, or go in rounds."""
    words = []
    for backward in (True, False):
        job, model, optimizer, loader = begin(sync=sync)
        _, x, y = next(iter(loader))
        if backward:
            error(model, x, y).backward()
        words.append(message_of(next, iter(loader)))
        message_of(job.close)
    return words


def unused_wrapper():
    job = isochron.Job(global_batch=BATCH)
    model = small_model()
    optimizer = sgd(model)
    job.prepare(model, optimizer)
    words = message_of(steps, job, model, optimizer, job.loader(Points()))
    job._abandon()
    job._close_step()
    job.close()  # it would count the collectives of later tests
    return words


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


def unseen_losses():
    """What is logged of losses by sample, and of a loss that a plain number scales; and what is said of it."""
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("isochron").addHandler(handler)
    logged, true = [], []
    for sync in ("bsp", "local", "asp"):
        job, model, optimizer, loader = begin(sync=sync, on_step=lambda record: logged.append(record.loss))
        for number, (_, x, y) in enumerate(loader):
            losses = (model(x) - y).square()
            if number == 0:
                (losses * job.weight).mean().backward()
                (losses.detach() * job.weight).sum()  # a figure for people
            else:
                (losses.mean() * torch.tensor(job.weight)).backward()
            true.append(losses.mean().item())
            optimizer.step()
            optimizer.zero_grad()
            if number == 2:
                break
        job.close()
        if sync == "local":  # whose record is of a round
            logged, true = logged[:3], true[:3]
    logging.getLogger("isochron").removeHandler(handler)
    return logged, true, [one for one in said if "loss" in one]


def unwrapped():
    job = isochron.Job(global_batch=BATCH)
    model = small_model()
    wrapped = job.prepare(model)
    ways = (model, wrapped, torch.compile(model), torch.compile(wrapped),
            nn.parallel.DistributedDataParallel(torch.compile(small_model())))  # fmt: skip
    found = [job.unwrap(one) is model for one in ways[:4]], type(job.unwrap(ways[4])).__name__
    job.close()
    return found


def texts():
    job, model, optimizer, loader = begin()
    steps(job, model, optimizer, loader, most=2)
    job.finish_step()
    words = [repr(job), repr(loader), repr(job.decision), repr(job.last_step)]
    job.close()
    job.close()
    return words


def same_class_and_length():
    """Another dataset of one class and length; one that is augmented, which is the same; one that nobody can tell."""
    words = []
    for first, second in ((Points(), Points(first=7)), (Points(noisy=True), Points(noisy=True)),
                          (Unseeded(), Unseeded())):  # fmt: skip
        for processes in (0, 1):
            job, model, optimizer, loader = begin(dataset=first)
            job.loader(first, num_workers=processes)
            words.append(message_of(job.loader, second, num_workers=processes))
            steps(job, model, optimizer, loader, most=1)
            assert loader.dataset is (first if words[-1] else second)
            job.close()
    job, *rest = begin()
    words.append(message_of(job.loader, Points(first=7), name="other"))
    assert len(job._datasets) == 2
    job.close()
    return words


class Unseeded(Points):
    """Its samples are others whenever they are asked for."""

    def __init__(self):
        super().__init__()
        self.generator = random.Random()

    def __getitem__(self, index):
        number, x, y = super().__getitem__(index)
        return number, x + self.generator.random(), y


class Drawn:
    """A sampler with a generator of its own."""

    def __init__(self, seed=None):
        self.generator = Generator(seed)

    def __len__(self):
        return BATCH * 2

    def __iter__(self):
        return (self.generator.own.randrange(480) for _ in range(len(self)))


class Generator:
    def __init__(self, seed):
        self.own = random.Random(seed)

    def manual_seed(self, seed):
        """As if it were torch's; it is not asked to be seeded."""


def drawn_by_samplers():
    words = []
    for sync in ("bsp", "local", "asp"):
        for sampler in (Drawn(), Drawn(seed=3)):
            job = isochron.Job(global_batch=BATCH, sync=sync)
            model = small_model()
            model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
            words.append(message_of(steps_of_any, job, model, optimizer, job.loader(Points(), sampler=sampler)))
            job.close()
    return words


def steps_of_any(job, model, optimizer, loader):
    for _, x, y in loader:
        job.backward(error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()


def counted_collectives():
    """How many waits a step's clock has seen after each, and what is left in torch's module when the jobs are gone."""
    collectives._keep(lambda _: False)  # of jobs that a test which failed has left
    before = dist.all_reduce
    other = isochron.Job(global_batch=BATCH)
    job, model, optimizer, loader = begin()
    waits = job._world.waits
    numbers, counts = torch.ones(2), []
    next(iter(loader))
    begun = waits.count
    rows = [torch.empty(2) for _ in range(job.size)]
    exchanges = (
        lambda: dist.all_reduce(numbers),
        lambda: dist.all_gather_object([None] * job.size, "word"),
        lambda: dist.all_gather(rows, numbers),
        dist.barrier,
        lambda: dist.all_reduce(numbers, async_op=True).wait(),
        lambda: job.sum([1.0]),
    )
    for exchange in exchanges:
        exchange()
        counts.append(waits.count - begun)
    assert other._world.waits.count == 0  # whose clock does not run
    job._abandon()
    job._close_step()
    job.close()
    kept = dist.all_reduce is before
    other.close()
    put_back = dist.all_reduce is before
    forgotten = isochron.Job(global_batch=BATCH)
    assert dist.all_reduce is not before
    del forgotten, job, model, optimizer, loader, other
    gc.collect()
    return counts, kept, put_back, dist.all_reduce is before


def trained_copies():
    """A copy that is neither in eval() nor an optimizer's; and one that turns out to have an optimizer."""
    job = isochron.Job(global_batch=BATCH)
    model = small_model()
    copied, other = copy.deepcopy(model), small_model(width=9)
    kinds = [type(one).__name__ for one in job.prepare(model, copied, other, sgd(model))[:3]]
    words = message_of(job.prepare, sgd(copied))
    job.close()
    return kinds, words
