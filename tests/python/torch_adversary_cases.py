"""A GAN whose steps end between its optimizers; test_torch_adversaries.py runs it."""

import os
import signal

import torch
import torch.distributed as dist

import isochron.torch as isochron
from loop_cells import Points, Run, adversarial_step, scaled_backward, sgd


def adversaries(how="", victim=-1, when=4, scaled=False):
    """A GAN whose step ends between the critic's step and the generator's on one rank: killed there, or out of memory
    behind its first pass, when the others have the critic's gradient already. Where model and buffers are then."""
    run = Run(slow=False, folder="")
    job = run.job(policy="static", weight=1.0, timeout=60.0)
    generator, critic = run.model(outputs=2, norm=True), run.model(norm=True)
    adam = torch.optim.Adam(critic.parameters(), lr=0.01, eps=1e-3)
    generator, critic, of_generator, of_critic = job.prepare(generator, critic, sgd(generator), adam)
    struck = dist.is_initialized() and dist.get_rank() == victim
    stop_clock = job._stop_clock

    def run_out_of_memory():
        nonlocal struck
        stop_clock()
        if struck and job.step == when:
            struck = False
            torch.empty(2**60)

    def loss_of_generator(made):
        if how == "kill" and struck and job.step == when:
            os.kill(os.getpid(), signal.SIGKILL)
        return critic(made).square().mean()

    if how == "memory":
        job._stop_clock = run_out_of_memory
    backward = scaled_backward if scaled else isochron.Job.backward
    for _, x, _ in job.loader(Points()):
        made = generator(x)
        apart = critic(x).square().mean() + (critic(made.detach()) - 1.0).square().mean()
        adversarial_step(job, backward, of_generator, of_critic, apart, lambda: loss_of_generator(made))  # noqa: B023
    return run.result()
