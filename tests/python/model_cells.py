"""Cells of the matrix of loops: what GANs, large models and their optimizers bring along."""

import time

import torch
from torch import nn
from torch.nn import functional

import isochron.torch as isochron
from loop_cells import (
    BATCH, SIZE, STEPS, Points, accumulated, adversarial_step, as_it_is, cell, error, gan, in_fsdp, in_own_ddp,
    scaled_backward, sgd, sharded_model, small_model, weighted, whole,
)  # fmt: skip


def compiled(model):
    return torch.compile(model, backend="aot_eager")


# Passes that DDP would not average.


def retained(run, backward, wrap=as_it_is, **options):
    """Two passes over one forward pass, and a pass behind each of two forward passes that came before both."""
    job = run.job(**options)
    model = run.model()
    inner = wrap(model)
    model, optimizer = job.prepare(inner, sgd(inner))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        value, other = model(x), model(x.flip(1))
        backward(job, functional.mse_loss(value, y), retain_graph=True)
        backward(job, other.square().mean() * 0.1)
        run.sleep(len(number) / 2)
        backward(job, value.square().mean() * 0.1)
        optimizer.step()
        optimizer.zero_grad()
    return inner


@cell("torch", "retain_graph", "job.backward")
def retained_by_job(run):
    retained(run, isochron.Job.backward)


@cell("torch", "retain_graph", "job.weight")
def retained_by_weight(run):
    retained(run, scaled_backward)


@cell("torch", "retain_graph", "one's own DDP")
def retained_in_own_ddp(run):
    retained(run, scaled_backward, in_own_ddp)


@cell("torch", "retain_graph", "unused parameters")
def retained_with_unused(run):
    """A parameter that no pass reaches."""

    def with_unused(model):
        model.register_parameter("unused", nn.Parameter(torch.zeros(2, dtype=torch.float64)))
        return model

    retained(run, isochron.Job.backward, with_unused, ddp={"find_unused_parameters": True})


@cell("torch", "retain_graph", "accumulate")
def retained_accumulated(run):
    job = run.job(global_batch=BATCH // 2)
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        with job.accumulate(2) as last:
            value = model(x)
            job.backward(functional.mse_loss(value, y), retain_graph=True)
            job.backward(value.square().mean() * 0.1)
        if last:
            optimizer.step()
            optimizer.zero_grad()


@cell("torch", "retain_graph", "FSDP2")
def retained_sharded(run):
    run.modules = [whole(retained(run, isochron.Job.backward, in_fsdp))]


# GANs.


@cell("torch", "GAN", "BatchNorm")
def gan_with_batch_norm(run):
    gan(run, isochron.Job.backward, norm=True)


@cell("torch", "GAN", "torch.compile")
def gan_compiled(run):
    gan(run, isochron.Job.backward, call=compiled)


@cell("torch", "GAN", "FSDP2")
def gan_sharded(run):
    gan(run, isochron.Job.backward, wrap=in_fsdp)
    run.modules = [whole(run.modules[0], outputs=2), whole(run.modules[1])]


def adversaries(run):
    job = run.job()
    generator, critic = run.model(outputs=2), run.model()
    return job, *job.prepare(generator, critic, sgd(generator), sgd(critic, lr=0.02))


def wasserstein(run, backward):
    """With a gradient penalty, whose pass goes through the gradient of the critic."""
    job, generator, critic, of_generator, of_critic = adversaries(run)
    for number, x, _ in job.loader(Points()):
        run.compute(number)
        made = generator(x).detach()
        between = (0.5 * x + 0.5 * made).requires_grad_(True)
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (slope.norm(dim=1) - 1.0).square().mean()
        apart = critic(made).mean() - critic(x).mean() + 10.0 * penalty
        adversarial_step(
            job, backward, of_generator, of_critic, apart, lambda x=x: -critic(generator(x)).mean() * 0.1)  # fmt: skip


@cell("torch", "GAN", "gradient penalty")
def wasserstein_by_job(run):
    wasserstein(run, isochron.Job.backward)


@cell("torch", "GAN", "gradient penalty, job.weight")
def wasserstein_by_weight(run):
    wasserstein(run, scaled_backward)


@cell("torch", "GAN", "a frozen critic, the generator every second batch")
def gan_in_turns(run):
    job, generator, critic, of_generator, of_critic = adversaries(run)
    for turn, (number, x, _) in enumerate(job.loader(Points())):
        run.compute(number)
        critic.requires_grad_(True)
        made = generator(x)
        job.backward(critic(x).square().mean() + (critic(made.detach()) - 1.0).square().mean())
        of_critic.step()
        of_critic.zero_grad()
        if turn % 2 == 1:
            critic.requires_grad_(False)
            job.backward(critic(made).square().mean())
            of_generator.step()
            of_generator.zero_grad()


# The loss scaled by the loop, and several batches to a step.


@cell("torch", "one backward", "job.weight, BatchNorm")
def weighted_batch_norm(run):
    weighted(run, run.model(norm=True))


@cell("torch", "one backward", "job.weight, torch.compile")
def weighted_compiled(run):
    weighted(run, run.model(), call=compiled)


@cell("torch", "one backward", "job.weight, FSDP2")
def weighted_sharded(run):
    model = sharded_model(run)
    weighted(run, model)
    run.modules = [whole(model)]


@cell("torch", "accumulate", "torch.compile")
def accumulated_compiled(run):
    accumulated(run, call=compiled)


@cell("torch", "accumulate", "FSDP2")
def accumulated_sharded(run):
    model = sharded_model(run)
    accumulated(run, model=model)
    run.modules = [whole(model)]


# Optimizers, scalers and iterators.


@cell("torch", "one backward", "GradScaler")
def scaled(run):
    job = run.job()
    model = run.model()
    model, optimizer, scaler = job.prepare(model, sgd(model), torch.amp.GradScaler("cpu", init_scale=2.0**10))
    for number, x, y in job.loader(Points()):
        run.compute(number)
        job.backward(error(model, x, y), scaler=scaler)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@cell("torch", "one backward", "LBFGS")
def lbfgs(run):
    """Which decides by the loss how far it goes, and how often it computes."""
    job = run.job()
    model = run.model()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn="strong_wolfe")
    model, optimizer = job.prepare(model, optimizer)
    for number, x, y in job.loader(Points()):
        run.compute(number)

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = error(model, x, y)
            job.backward(loss)
            return loss

        optimizer.step(closure)


@cell("torch", "one backward", "an iterator without an end")
def endless(run):
    def batches(loader):
        while True:
            yield from loader

    job = run.job()
    model = run.model()
    model, optimizer = job.prepare(model, sgd(model))
    found = batches(job.loader(Points(SIZE // 2)))
    for _ in range(STEPS):
        number, x, y = next(found)
        run.compute(number, job.epoch)
        job.backward(error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
    job.finish_step()
    assert job.step == STEPS and job.ledger.complete


# No loop of its own: what becomes of shares where time hardly depends on them.


def constant_time():
    splits, words = [], []

    def note(record):
        splits.append(record.batch_sizes)
        words.append(record.words)

    job = isochron.Job(global_batch=64, on_step=note)
    model = small_model()
    model, optimizer = job.prepare(model, sgd(model))
    for _, x, y in job.loader(Points(64 * 40)):
        time.sleep(0.02)
        job.backward(error(model, x, y))
        optimizer.step()
        optimizer.zero_grad()
    job.close()
    return {"splits": splits, "words": words}
