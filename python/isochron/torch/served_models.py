"""Models that nobody wraps: of a job that is not in step, whose parameters come from the shards, or that goes in
rounds."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from isochron.torch.parallel import Models, is_fsdp


class ServedModels(Models):
    def add(self, model: nn.Module) -> nn.Module:
        if isinstance(model, DistributedDataParallel) or is_fsdp(model):
            raise ValueError(
                f"the model is {type(model).__name__} with sync '{self._options.sync}'; permitted: the plain model, "
                "whose gradients nobody averages"
            )
        self._move(model)
        self.models.append(model)
        with torch.no_grad():
            for tensor in [*model.parameters(), *model.buffers()]:  # as DDP does
                tensor.copy_(self._world.broadcast_state(tensor.detach().cpu(), 0))
        return model

    @property
    def have_gradients(self) -> bool:
        """No stopwatch notes them here."""
        return any(parameter.grad is not None for parameter in self.parameters())

    def average_buffers(self, samples: float) -> None:
        """BatchNorm's running statistics, by the samples of each worker since the last barrier. Collective."""
        buffers = [buffer for model in self.models for buffer in model.buffers()]
        if not buffers:
            return
        mine = [buffer.detach().double().cpu().flatten() * samples for buffer in buffers]
        total = self._world.reduce(torch.cat([torch.tensor([samples], dtype=torch.float64), *mine]))
        if total[0] == 0:
            return
        means = total[1:] / total[0]
        with torch.no_grad():
            for buffer, mean in zip(buffers, means.split([buffer.numel() for buffer in buffers]), strict=True):
                kept = mean if buffer.is_floating_point() else mean.round()
                buffer.copy_(kept.view(buffer.shape))
