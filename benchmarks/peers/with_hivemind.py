"""Hivemind's Optimizer, as its quick start says, with the shortest waiting that its guide names. Peers have no common
order of samples: each draws its own."""

import time

import hivemind
import torch
import torch_task
from torch.utils.data import DataLoader, RandomSampler, Subset


def join(run):
    """The first one opens the network, the others ask it."""
    listen = ["/ip4/127.0.0.1/tcp/0"]
    place = run.folder / "network"
    if run.rank == 0:
        dht = hivemind.DHT(host_maddrs=listen, start=True)
        place.with_suffix(".new").write_text("\n".join(map(str, dht.get_visible_maddrs())))
        place.with_suffix(".new").rename(place)
        return dht
    while not place.exists():
        time.sleep(0.05)
    return hivemind.DHT(host_maddrs=listen, initial_peers=place.read_text().split(), start=True)


def train(run):
    task = torch_task.Task(run)
    batch = run.shares[run.rank] if run.shares else max(run.batch // run.size // 2, 1)
    dht = join(run)
    optimizer = hivemind.Optimizer(
        dht=dht, run_id="duel", batch_size_per_step=batch, target_batch_size=run.batch, params=task.model.parameters(),
        optimizer=task.optimizer, matchmaking_time=run.options.matchmaking, averaging_timeout=10.0, verbose=True,
        tracker_opts={"min_refresh_period": 0.1, "default_refresh_period": 0.5, "max_refresh_period": 2.0},
        averager_opts={"request_timeout": run.options.matchmaking / 3}, load_state_timeout=20.0,
    )  # fmt: skip
    data = Subset(task.dataset, run.my_samples()) if run.shares else task.dataset
    generator = torch.Generator().manual_seed(run.rank)
    loader = DataLoader(data, batch_size=batch, sampler=RandomSampler(data, generator=generator), drop_last=True)
    started = len(list(run.folder.glob("ready-*")))
    (run.folder / f"ready-{run.rank}").touch()
    while started < run.size - 1 and len(list(run.folder.glob("ready-*"))) < run.size - run.options.absent:
        time.sleep(0.05)
    for epoch, (x, y, ids) in torch_task.epochs(loader):
        before = optimizer.local_epoch
        optimizer.zero_grad()
        task.loss(task.model, x, y).backward()
        optimizer.step()
        parameters = task.parameters() if run.options.snapshots and optimizer.local_epoch > before else None
        run.options.snapshots = min(run.options.snapshots, 1)  # its steps are long: all of them
        if run.done(ids, epoch, before, parameters) and optimizer.local_epoch >= run.steps:
            run.save(f"result-{run.rank}", task.parameters()())
            break
    time.sleep(1)
    optimizer.shutdown()
    dht.shutdown()
