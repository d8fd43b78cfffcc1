"""Isochron, as docs/pytorch.md says."""

import itertools

import torch_task

import isochron.torch as isochron


def train(run):
    task = torch_task.Task(run)
    policy = "static:weights=" + "/".join(map(str, run.shares)) if run.shares else "isochron"
    job = isochron.Job(global_batch=run.batch, policy=policy, device="cpu")
    model, optimizer = job.prepare(task.model, task.optimizer(task.model.parameters()))
    loader = job.loader(task.dataset)
    for epoch in itertools.count():
        for x, y, ids in loader:
            if not job.backward(task.loss(model, x, y)):
                continue  # somebody was lost: the same samples come again
            optimizer.step()
            optimizer.zero_grad()
            if run.done(ids, epoch, job.step, task.parameters()):
                return
