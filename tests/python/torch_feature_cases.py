"""What the ranks of the feature tests do; torch_cases.py hands these on."""

import contextlib
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import isochron.torch as isochron
import torch_models as models
from isochron._core import Sampler

# What Lightning's Trainer is told in all tests.
QUIET = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
         "enable_model_summary": False, "use_distributed_sampler": False}  # fmt: skip


class Numbers(Dataset):
    """Each sample is its number, and a random one."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"number": index, "noise": torch.rand(2), "name": f"sample {index}"}


class Stream(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return iter(range(self.size))


def small_model(dtype=torch.float64):
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).to(dtype)


def loader_counts(num_workers, size=103, batch=20, custom=False):
    """What each step handed out, with a worker whose speed changes so that the split does."""
    job = isochron.Job(global_batch=batch)
    model = job.prepare(small_model(torch.float32))
    loader = job.loader(Numbers(size), num_workers=num_workers, collate_fn=as_tensors if custom else None)
    rounds = []
    for epoch in job.epochs(2):
        for entry in loader:
            plan = job._share.plan
            rounds.append((epoch, plan.position, plan.batch, job._share.stand_in, entry["number"].tolist(),
                           entry["noise"].double().sum().item(), list(entry["name"])))  # fmt: skip
            output = model(entry["noise"])
            if job.rank == 1:
                time.sleep(0.002 * len(entry["number"]) * (1 if job.step % 6 < 3 else 4))
            job.backward(output.mean())
    complete = job.ledger.complete
    job.close()
    return {"rounds": rounds, "complete": complete, "length": len(loader)}


def as_tensors(samples):
    return {
        "number": torch.tensor([sample["number"] for sample in samples]),
        "noise": torch.stack([sample["noise"] for sample in samples]),
        "name": [sample["name"] for sample in samples],
    }


def stream_counts(size=50, batch=12):
    job = isochron.Job(global_batch=batch, policy="static:weights=1/2")
    model = job.prepare(small_model(torch.float32))
    seen = []
    loader = job.loader(Stream(size))
    for _ in job.epochs(2):
        for x in loader:
            if not job._share.stand_in:
                seen.append(x.tolist())
            job.backward(model(torch.ones(len(x), 2)).mean())
    intervals = job.ledger.intervals
    job.close()
    return seen, intervals


def begin(steps, batch=10, size=95):
    """Trains for some steps; returns what was used and the state to go on with."""
    job = isochron.Job(global_batch=batch)
    _, seen = run_steps(job, steps, size)
    state = job.state_dict()
    job.close()
    return {"seen": seen, "state": state}


def go_on(state, batch=10, size=95):
    job = isochron.Job(global_batch=batch)
    job.load_state_dict(state)
    step = job.step
    _, seen = run_steps(job, 10**9, size)
    complete = job.ledger.complete
    job.close()
    return {"seen": seen, "complete": complete, "step": step}


def run_steps(job, steps, size):
    model = job.prepare(small_model(torch.float32))
    seen = []
    for entry in job.loader(Numbers(size)):
        seen += [] if job._share.stand_in else entry["number"].tolist()
        job.backward(model(entry["noise"]).mean())
        steps -= 1
        if steps == 0:
            break
    return model, seen


class Sentences(Dataset):
    """Sentences of unequal lengths: the mean over tokens is not the mean over sentences."""

    def __init__(self, size=60):
        generator = torch.Generator().manual_seed(6)
        self.x = torch.randn(size, 9, 2, generator=generator, dtype=torch.float64)
        self.length = torch.randint(1, 10, (size,), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.length[index]


def token_losses(model, x, length):
    """The losses of all tokens that count."""
    mask = torch.arange(x.shape[1])[None, :] < length[:, None]
    return (model(x).squeeze(-1) ** 2)[mask]


def token_gradients(mode):
    """The gradient of the first step (or group), with the job and of one process: largest difference, and size."""
    batch, accumulate = 12, 3 if mode == "accumulate" else 1
    data = Sentences()
    job = isochron.Job(global_batch=batch, policy="static:weights=1/3")
    model = job.prepare(small_model())
    for x, length in job.loader(data):
        with job.accumulate(accumulate) as last:
            losses = token_losses(model, x, length)
            if mode == "sum":
                job.backward(losses.sum(), reduction="sum")
            else:
                job.backward(losses.mean(), count=losses.numel())
        if last:
            break
    mine = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    job.finish_step()
    logged = job.last_step.loss
    job.close()
    alone = small_model()
    sampler = Sampler(len(data), batch)
    x, length = torch.utils.data.default_collate([data[index] for index in sampler.samples(0, batch * accumulate)])
    losses = token_losses(alone, x, length)
    (losses.sum() if mode == "sum" else losses.mean()).backward()
    theirs = torch.cat([parameter.grad.flatten() for parameter in alone.parameters()])
    return {"far": (mine - theirs).abs().max().item(), "size": theirs.abs().max().item(), "loss": logged,
            "true_loss": losses.mean().item()}  # fmt: skip


def scaler(overflowing_rank):
    """Whether an overflow on one rank makes all of them skip the step."""
    job = isochron.Job(global_batch=12, policy="static:weights=1/3")
    model = small_model(torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    grad_scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    model, optimizer, grad_scaler = job.prepare(model, optimizer, grad_scaler)
    before = model.module[0].weight.detach().clone()
    after = []
    for x, _ in job.loader(Sentences()):
        loss = model(x.float()).square().mean()
        if job.step == 0 and job.rank == overflowing_rank:
            loss = loss * torch.inf
        job.backward(loss, scaler=grad_scaler)
        grad_scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        grad_scaler.step(optimizer)
        grad_scaler.update()
        optimizer.zero_grad()
        after.append(model.module[0].weight.detach().clone())
    job.close()
    return {"kept": torch.equal(before, after[0]), "moved": not torch.equal(before, after[-1]),
            "scale": grad_scaler.get_scale(), "sum": after[-1].sum().item()}  # fmt: skip


def gan():
    """Two models, two optimizers, losses that the loop scales by itself; against one process."""
    data = Sentences()
    generator, critic = small_model(), small_model()

    def losses(generator, critic, x):
        made = torch.cat((generator(x), x[..., :1]), -1)
        return critic(x).square().mean() + critic(made.detach()).mean(), -critic(made).mean()

    job = isochron.Job(global_batch=12, policy="static:weights=1/3")
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (generator, critic)]
    g, c, *_ = job.prepare(generator, critic, *optimizers)
    steps = 0
    for x, _ in job.loader(data):
        for model, optimizer, which in ((c, optimizers[1], 0), (g, optimizers[0], 1)):
            loss = losses(g, c, x)[which] * job.weight
            loss.backward(inputs=list(model.parameters()))
            optimizer.step()
            optimizer.zero_grad()
        steps += 1
    times = [worker.compute_seconds for worker in job.last_step.workers] if job.last_step else []
    job.close()
    mine = torch.cat([p.detach().flatten() for p in (*generator.parameters(), *critic.parameters())])
    g, c = small_model(), small_model()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (g, c)]
    sampler = Sampler(len(data), 12)
    for _ in range(steps):
        x = torch.stack([data[i][0] for i in sampler.samples(sampler.position, sampler.position + 12)])
        for model, optimizer, which in ((c, optimizers[1], 0), (g, optimizers[0], 1)):
            losses(g, c, x)[which].backward(inputs=list(model.parameters()))
            optimizer.step()
            optimizer.zero_grad()
        sampler.advance()
    theirs = torch.cat([p.detach().flatten() for p in (*g.parameters(), *c.parameters())])
    return {"far": (mine - theirs).abs().max().item(), "steps": steps, "times": times}


def recompiles(sizes, granularity=1):
    """How often torch.compile compiles while the batch changes from step to step."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    job = isochron.Job(global_batch=24, policy="uniform", granularity=granularity)
    model = job.prepare(torch.compile(small_model(torch.float32), backend=counter))
    seen = set()
    for entry in job.loader(Numbers(24 * len(sizes))):
        seen.add(len(entry["noise"]))
        job.backward(model(entry["noise"]).mean())
        job.finish_step()
        if job.step < len(sizes):
            bounds = [sizes[job.step], 24 - sizes[job.step]]
            job._replica.change_bounds([(bound, bound) for bound in bounds])
    job.close()
    return {"seen": sorted(seen), "compiled": counter.frame_count}


def comm_hook():
    """A hook that sends gradients in half precision: how far that is from exact ones."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    gradients = []
    for hook in (None, fp16_compress_hook):
        job = isochron.Job(global_batch=12, policy="static:weights=1/3")
        model = job.prepare(small_model(torch.float32))
        if hook is not None:
            model.register_comm_hook(None, hook)
        for x, _ in job.loader(Sentences()):
            job.backward(model(x.float()).square().mean())
            break
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
        job.close()
    exact, short = gradients
    return {"far": ((exact - short).norm() / exact.norm()).item()}


def power_sgd(victim=None, weighting="exact", even=False, spoil=None):
    """Trains with PyTorch's PowerSGD on unequal shares, perhaps through the loss of a worker or of a step; parameters,
    and how many numbers it saved."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    weight = 1.0 if even else 1.0 + dist.get_rank()
    events = []
    job = isochron.Job(global_batch=24, policy="static", weight=weight, weighting=weighting, reseed=False,
                       on_nonfinite="stop" if spoil is None else "skip", on_event=events.append)  # fmt: skip
    model = models.make("gpt2")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer = job.prepare(model, optimizer)
    state = power.PowerSGDState(model.process_group, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, power.powerSGD_hook)
    for x, y in job.loader(models.Text(size=24 * 12)):
        if dist.get_rank() == victim and job.step == 6:
            model(x)
            os.kill(os.getpid(), signal.SIGKILL)
        loss = models.loss_of(model(x), y)
        job.backward(loss * float("nan") if job.step == spoil and job.rank == 1 else loss)
        optimizer.step()
        optimizer.zero_grad()
    complete = job.ledger.complete
    saved = state.total_numel_before_compression - state.total_numel_after_compression
    with contextlib.suppress(Exception):
        job.close()
    flat = torch.cat([one.detach().flatten() for one in model.parameters()])
    return {"parameters": flat.tolist(), "saved": saved, "complete": complete, "errors": len(state.error_dict),
            "events": [event.event for event in events]}  # fmt: skip


def zero():
    """ZeroRedundancyOptimizer beside plain SGD: the same parameters."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    ends = []
    for kind in ("plain", "zero"):
        job = isochron.Job(global_batch=12, policy="static:weights=1/3")
        model = job.prepare(small_model())
        if kind == "zero":
            optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
        else:
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for x, _ in job.loader(Sentences()):
            job.backward(model(x).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        job.close()
        ends.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    return {"far": (ends[0] - ends[1]).abs().max().item(), "size": ends[0].abs().max().item()}


def disagree():
    """The error that each rank gets."""
    try:
        isochron.Job(global_batch=12 + dist.get_rank())
    except ValueError as error:
        return str(error)
    return None


def saved(path, restore):
    """Five steps of an Adam with a schedule, saved or restored after two; the end and the learning rate."""
    job = isochron.Job(global_batch=12, policy="static:weights=1/3")
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    model, optimizer, schedule = job.prepare(model, optimizer, schedule)
    if restore:
        job.restore(path)
    steps = []
    for x, _ in job.loader(Sentences()):
        steps.append(job.step)
        job.backward(model(x).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if job.step == 1 and not restore:
            job.save(path)
    job.close()
    return {"steps": steps, "rate": optimizer.param_groups[0]["lr"],
            "end": torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()}  # fmt: skip


def run_log(path, board):
    job = isochron.Job(global_batch=20, log=path, tensorboard=board, name=f"machine-{dist.get_rank()}")
    model = job.prepare(small_model(torch.float32))
    loader = job.loader(Numbers(90))
    for _ in job.epochs(2):
        for entry in loader:
            job.backward(model(entry["noise"]).mean())
    job.evaluation(loss=1.0, accuracy=0.5)
    job.close()


def balance(steps=15):
    """Rank 1 takes 16 ms a sample, rank 0 takes 4 ms: what the split comes to."""
    job = isochron.Job(global_batch=40, on_nonfinite="stop")
    model = job.prepare(small_model(torch.float32))
    for entry in job.loader(Numbers(40 * steps)):
        time.sleep(len(entry["number"]) * (0.004 if job.rank == 0 else 0.016))
        job.backward(model(entry["noise"]).mean())
    job.finish_step()
    split = job.batch_sizes
    job.close()
    return split


# Failures.


def example(path, arguments):
    """Runs a script as a user would; what it printed last."""
    import io
    import os
    import runpy
    import sys

    output = io.StringIO()
    words, sys.argv = sys.argv, [path, *arguments]
    sys.path.insert(0, os.path.dirname(path))
    try:
        with contextlib.redirect_stdout(output), torchrun_variables():
            runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv = words
        sys.path.pop(0)
    return output.getvalue().splitlines()[-1]


@contextlib.contextmanager
def torchrun_variables():
    """Without them Accelerate and Lightning do not see the group. What it found in an earlier case is forgotten."""
    import os
    import sys
    from unittest import mock

    for name in ("AcceleratorState", "GradientState", "PartialState"):
        if "accelerate.state" in sys.modules:
            getattr(sys.modules["accelerate.state"], name)._reset_state()
    there = {}
    if dist.is_initialized():
        there = {"RANK": dist.get_rank(), "LOCAL_RANK": dist.get_rank(), "WORLD_SIZE": dist.get_world_size(),
                 "LOCAL_WORLD_SIZE": dist.get_world_size(), "GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": "tests",
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29999}  # fmt: skip
    with mock.patch.dict(os.environ, {name: str(value) for name, value in there.items()}):
        yield


def places():
    """What the variables of launchers are taken for."""
    from dataclasses import astuple

    from isochron.torch.environment import find_place

    variables = {
        "nothing": {},
        "torchrun": {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "first", "MASTER_PORT": "29400"},
        "slurm": {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_NODELIST": "gpu[03-07,9],x"},
        "two groups": {"SLURM_PROCID": "0", "SLURM_NTASKS": "3", "SLURM_HET_SIZE": "3",
                       "SLURM_STEP_NODELIST": "a[09-11],b", "SLURM_JOB_NODELIST_HET_GROUP_0": "c",
                       "SLURM_JOB_NODELIST_HET_GROUP_1": "a[10-11]", "SLURM_JOB_NODELIST_HET_GROUP_2": "a09,b"},
        "open mpi": {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
                     "OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMIX_NAMESPACE": "job-1"},
    }  # fmt: skip
    found = {name: find_place(given) for name, given in variables.items()}
    result = {name: place and astuple(place) for name, place in found.items()}
    try:
        find_place({"RANK": "x", "WORLD_SIZE": "2"})
    except ValueError as error:
        result["bad"] = str(error)
    return result


def clustered(path):
    """A worker of an emulated cluster: what it takes from the variables, and what the launcher reads."""
    import os

    with open(path, "wb") as file:
        file.write((-1).to_bytes(8, "little", signed=True))
    given = {"ISOCHRON_STEP_FILE": path, "ISOCHRON_WORKER_NAME": "slow", "ISOCHRON_MAX_BATCH": "30"}
    os.environ.update(given)
    try:
        job = isochron.Job(global_batch=20, granularity=2)
        model = job.prepare(small_model(torch.float32))
        for entry in job.loader(Numbers(60)):
            job.backward(model(entry["noise"]).mean())
        worker = job._replica.members[0]
        job.close()
    finally:
        for name in given:
            del os.environ[name]
    with open(path, "rb") as file:
        return worker.name, job.options.max_batch, worker.granularity, int.from_bytes(file.read(), "little")


def too_large(options):
    """What a job says to a dataset that has fewer samples than its global batch."""
    job = isochron.Job(global_batch=7, **options)
    model = small_model(torch.float32)
    job.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    try:
        next(iter(job.loader(Numbers(6))))
    except ValueError as error:
        return str(error)
    finally:
        job.close()


def started_from(path):
    """The first split of a job that is told of an earlier run, or what it says against it."""
    try:
        job = isochron.Job(global_batch=40, start_from=path)
    except ValueError as error:
        return str(error)
    sizes, words = job.batch_sizes, job.decision.words
    job.close()
    return sizes, words
