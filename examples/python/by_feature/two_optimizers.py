"""Two models, two optimizers and two backward passes a step, as a GAN has them."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import isochron.torch as isochron

torch.manual_seed(1)
dataset = TensorDataset(torch.randn(2000, 2) * 0.1 + 2.0)  # points around (2, 2)
generator, critic = nn.Linear(4, 2), nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=0.02)
of_critic = torch.optim.Adam(critic.parameters(), lr=0.02)

job = isochron.Job(global_batch=100)
generator, critic, of_generator, of_critic = job.prepare(generator, critic, of_generator, of_critic)
for _ in job.epochs(5):
    for (real,) in job.loader(dataset):
        made = generator(torch.randn(len(real), 4, device=real.device))
        job.backward((critic(made.detach()) - critic(real)).mean() + critic(real).square().mean() * 0.01)
        of_critic.step()
        of_critic.zero_grad()
        job.backward(-critic(made).mean())  # the second pass of the same step
        of_generator.step()
        of_generator.zero_grad()
        of_critic.zero_grad()  # the generator's pass has left something there
with torch.no_grad():
    distance = (generator(torch.randn(1000, 4, device=job.device)).mean(0) - 2.0).norm().item()
print(f"distance {distance:.2f} at step {job.step}")
job.close()
