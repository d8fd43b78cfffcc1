"""What the ranks of the tests do on a GPU."""

import torch
import torch.distributed as dist
from torch import nn

import isochron.torch as isochron
import torch_models as models


def gpu_of_rank():
    """One each if there are enough; else they share it, which NCCL 2.30 permits if NCCL_MULTI_RANK_GPU_ENABLE is 1."""
    return torch.device("cuda", dist.get_rank() % torch.cuda.device_count())


def mixed(steps=20, gpus=1):
    """The first ranks compute on GPUs, the others on CPUs; how far that ends from one process on a CPU."""
    import torch_cases

    device = gpu_of_rank() if dist.get_rank() < gpus else torch.device("cpu")
    job = isochron.Job(global_batch=24, policy="static", weight=1.0 + dist.get_rank(), device=device, reseed=False)
    model = models.make("cnn").to(device)
    model, optimizer = job.prepare(model, torch_cases.optimizer_of(model))
    sizes = []
    dataset = models.Images(size=24 * steps)
    for x, y in job.loader(dataset):
        sizes.append(len(x))
        job.backward(models.loss_of(model(x.to(device)), y.to(device)))
        optimizer.step()
        optimizer.zero_grad()
    job.close()
    mine = torch_cases.flat(model).cpu()
    alone = torch_cases.train_alone("cnn", steps, 24, torch.float64, dataset=dataset)
    world = job._world
    return {
        "far": (mine - alone).abs().max().item(),
        "sizes": sizes,
        "complete": job.ledger.complete,
        "gradients": dist.get_backend(world.gradients),
        "statistics": world.where_exchanged(torch.zeros(1, device=device)).device.type,
        "reports": dist.get_backend(world.control),
        "sides": world.sides is not None,
    }


def survive_mixed(gpus, **arguments):
    from torch_failure_cases import survive

    return survive(device=gpu_of_rank() if dist.get_rank() < gpus else "cpu", **arguments)


class Spin(torch.autograd.Function):
    """Keeps the GPU's stream busy for so many cycles, and twice as many backward."""

    @staticmethod
    def forward(ctx, x, cycles):
        ctx.cycles = cycles
        torch.cuda._sleep(cycles)
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        torch.cuda._sleep(2 * ctx.cycles)
        return dy, None


class Busy(nn.Module):
    def __init__(self, cycles, norm):
        super().__init__()
        self.linear, self.cycles = nn.Linear(64, 64), cycles
        self.norm = nn.BatchNorm1d(64) if norm else nn.Identity()

    def forward(self, x):
        return Spin.apply(self.norm(self.linear(x)), self.cycles)


def sharded(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def paced(kind, steps=8, slowness=3):
    """Rank 1 needs `slowness` times as many cycles as rank 0. Seconds of both in every step but the first ones, as the
    clocks say, and of the whole step."""
    device = gpu_of_rank()
    torch.cuda.set_device(device)
    cycles = 5_000_000 * (slowness if dist.get_rank() == 1 else 1)
    torch.manual_seed(0)
    models = [
        nn.Sequential(*(Busy(cycles, kind == "batch_norm") for _ in range(6))).to(device)
        for _ in range(2 if kind == "two_optimizers" else 1)
    ]
    if kind.startswith("fsdp2"):
        models = [sharded(one) for one in models]
    times = []
    job = isochron.Job(global_batch=16, policy="uniform", device=device, on_step=lambda step: times.append(step))
    prepared = job.prepare(*models, *(torch.optim.SGD(one.parameters(), lr=0.01) for one in models))
    models, optimizers = prepared[: len(models)], prepared[len(models) :]
    for (x,) in job.loader(torch.utils.data.TensorDataset(torch.randn(16 * steps, 64))):
        for one in models:
            if kind.endswith("two_passes"):
                for _ in range(2):
                    (one(x.to(device)).square().mean() * job.weight).backward()
                continue
            loss = one(x.to(device)).square().mean()
            if kind == "all_reduce":
                dist.all_reduce(loss.detach().clone())
            job.backward(loss)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    job.close()
    return [([worker.compute_seconds for worker in step.workers], step.seconds) for step in times[3:]]


def graphed(mode, steps=12):
    """A compiled model whose split changes, after its steps; and the same trained as it is."""
    device = gpu_of_rank()
    torch.cuda.set_device(device)
    weights = []
    for compiled in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
        splits = []
        job = isochron.Job(global_batch=16, policy="uniform", device=device, on_step=lambda step: splits.append(step))
        whole = torch.compile(model, mode=mode) if compiled else model
        whole, optimizer = job.prepare(whole, torch.optim.SGD(model.parameters(), lr=0.1))
        data = torch.randn(16 * steps - 6, 64, generator=torch.Generator().manual_seed(1))  # the last step is smaller
        for (x,) in job.loader(torch.utils.data.TensorDataset(data)):
            job.backward(whole(x.to(device)).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        job.close()
        assert len(splits) == steps
        weights.append(torch.cat([one.detach().flatten() for one in model.parameters()]).cpu())
    return (weights[0] - weights[1]).abs().max().item()


def normalised(kind, sizes=(10, 6), steps=3):
    """Two layers over unequal shares, against torch's own over the whole batch in this process: how far outputs,
    gradients and running statistics are apart at most, relative to the largest, and which of torch's kernels ran."""
    from isochron.torch.batch_norm import Statistics, make_exact
    from isochron.torch.world import World

    device = gpu_of_rank()
    torch.cuda.set_device(device)
    world = World(60.0, False, device)
    dtype = torch.float64 if kind == "float64" else torch.float32
    torch.manual_seed(0)
    whole = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.BatchNorm2d(8)).to(device, dtype)
    mine = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.BatchNorm2d(8)).to(device, dtype)
    # As they are made, without biases, the second layer would undo the weights of the first, whose gradients would be 0
    # but for rounding.
    for parameter in whole.parameters():
        nn.init.uniform_(parameter, 0.5, 1.5)
    mine.load_state_dict(whole.state_dict())
    make_exact(mine, Statistics(world))
    share = slice(sum(sizes[: world.rank]), sum(sizes[: world.rank + 1]))
    far = 0.0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(steps):
            x = torch.randn(sum(sizes), 8, 7, 9, device=device, dtype=dtype)
            dy = torch.randn_like(x)
            if kind == "channels_last" or kind == "bf16":
                x, dy = (one.to(memory_format=torch.channels_last) for one in (x, dy))
            found, expected = [], []
            for model, rows, into in ((mine, share, found), (whole, slice(None), expected)):
                one = (x[rows].bfloat16() if kind == "bf16" else x[rows]).detach().requires_grad_()
                y = model(one)
                y.backward(dy[rows].to(y.dtype))
                into += [y.detach(), one.grad]
            for ours, theirs in zip(found, expected, strict=True):
                far = max(far, ((ours - theirs[share]).abs().max() / theirs.abs().max()).item())
            for ours, theirs in zip(mine.parameters(), whole.parameters(), strict=True):
                dist.all_reduce(ours.grad, group=world.gradients)
                far = max(far, ((ours.grad - theirs.grad).abs().max() / theirs.grad.abs().max()).item())
                ours.grad = theirs.grad = None
            for ours, theirs in zip(mine.buffers(), whole.buffers(), strict=True):
                far = max(far, ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1)).item())
    names = {event.key for event in profile.key_averages() if event.key.startswith("aten::batch_norm_")}
    return {"far": far, "kernels": sorted(names), "backend": world._backend}


class Blocks(torch.utils.data.Dataset):
    """Samples of 16 MB."""

    def __len__(self):
        return 24 * 6

    def __getitem__(self, index):
        return torch.full((4 * 2**20,), float(index))


def starve():
    """All on one GPU, of which rank 1 may use 600 MB: a batch of 12 needs more. The batches it computed."""
    rank = dist.get_rank()
    if rank == 1:
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(600 * 2**20 / whole)
    events = []
    job = isochron.Job(global_batch=24, policy="static", weight=1.0, device="cuda:0", on_event=events.append,
                       timeout=30.0)  # fmt: skip
    model = torch.nn.Linear(1, 1)
    model, optimizer = job.prepare(model.to("cuda:0"), torch.optim.SGD(model.parameters(), lr=0.01))
    computed = []
    for x in job.loader(Blocks()):

        def loss(x=x):
            return model(x.to("cuda:0").unsqueeze(-1)).tanh().mean()

        step = job.step
        if job.backward(loss):
            computed.append((step, len(x)))
        optimizer.step()
        optimizer.zero_grad()
    complete = job.ledger.complete
    job.close()
    return {"computed": computed, "complete": complete, "events": [(event.event, event.worker) for event in events]}


def dropped(p=0.3):
    """The same elements on a CPU and on a GPU."""
    from isochron.torch.dropout import keep

    positions, key = [0, 5, 2**40], 2**63 + 11
    here = keep(key, positions, 1000, p, torch.device("cpu"))
    there = keep(key, positions, 1000, p, gpu_of_rank())
    return torch.equal(here, there.cpu())
