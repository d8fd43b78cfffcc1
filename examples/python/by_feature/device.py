"""Device placement: without device= the job takes this worker's GPU if it has one. prepare() moves the model there, and
batches come there, too."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import isochron.torch as isochron

torch.manual_seed(1)
x = torch.randn(2000, 20)
dataset = TensorDataset(x, (x[:, 0] > 0).long())

device = "cuda" if torch.cuda.is_available() else "cpu"  # may differ between workers
job = isochron.Job(global_batch=100, device=device)
model = nn.Linear(20, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
model, optimizer = job.prepare(model, optimizer)
for _ in job.epochs(2):
    for inputs, target in job.loader(dataset, pin_memory=torch.cuda.is_available()):
        loss = nn.functional.cross_entropy(model(inputs), target)
        job.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
print(f"loss {loss.item():.3f} on {inputs.device.type}")
job.close()
