"""What the ranks of the tests do on a GPU."""

import torch
import torch.distributed as dist

import isochron.torch as isochron
import torch_models as models


def mixed(steps=20):
    """Rank 0 computes on a GPU, the others on CPUs; how far that ends from one process on a CPU."""
    import torch_cases

    device = torch.device("cuda:0" if dist.get_rank() == 0 else "cpu")
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
    return {"far": (mine - alone).abs().max().item(), "sizes": sizes, "complete": job.ledger.complete}


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
