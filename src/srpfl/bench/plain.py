"""Local training as people write it: a copy of the model, a DataLoader and an optimiser for each
client in turn. The yardstick of the benchmarks; nothing else uses it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from srpfl.core.rules import SGD, is_bias
from srpfl.core.slots import Reply
from srpfl.core.split import combine
from srpfl.data.base import Federated, Transform
from srpfl.engine.base import Job, Local, Score

Pair = tuple[Tensor, Tensor]


class Augmented(Dataset[Pair]):
    """Random crop and flip of one image at a time, in the data set, as in the usual recipes."""

    def __init__(self, x: Tensor, y: Tensor, transform: Transform) -> None:
        self.x, self.y, self.transform = x, y, transform
        self.black = transform.prepare(torch.zeros(1, *x.shape[1:], dtype=torch.uint8))[0]

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, place: int) -> Pair:
        image, pad = self.x[place], self.transform.crop
        if pad:
            height, width = image.shape[-2:]
            shift = image - self.black  # so that padding with zeros is padding with black
            row, column = (int(torch.randint(2 * pad + 1, ())) for _ in range(2))
            padded = F.pad(shift, (pad,) * 4)[..., row : row + height, column : column + width]
            image = padded + self.black
        if self.transform.flip and int(torch.randint(2, ())):
            image = image.flip(-1)
        return image, self.y[place]


class PlainEngine:
    """Clients in turn, on as many threads as PyTorch is told."""

    def __init__(self, model: nn.Module, data: Federated) -> None:
        self.model, self.data = model, data
        self.held: dict[int, Dataset[Any]] = {}

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        return [[self._train(job, place) for place in range(len(job.clients))] for job in jobs]

    def test(self, jobs: Sequence[Job]) -> list[list[Score]]:
        raise NotImplementedError("only training is compared")

    def _train(self, job: Job, place: int) -> Local:
        client, (plan,) = job.clients[place], job.plans
        rule = plan.rule
        assert isinstance(rule, SGD)
        model = copy.deepcopy(self.model)
        model.load_state_dict(combine(job.shared, job.personal[place]))
        samples = self._samples(client)
        loader = DataLoader(samples, batch_size=plan.batch_size, shuffle=True)
        named = dict(model.named_parameters())
        groups: list[dict[str, Any]] = [
            {"params": [p for n, p in named.items() if is_bias(n)], "weight_decay": 0.0},
            {"params": [p for n, p in named.items() if not is_bias(n)]},
        ]
        optimiser = torch.optim.SGD(
            groups, lr=rule.lr, momentum=rule.momentum, weight_decay=rule.weight_decay
        )
        losses: list[float] = []
        for phase in plan.phases:
            for name, parameter in named.items():
                parameter.requires_grad_(name in phase.trains)
                parameter.grad = None
            losses = []
            for _ in range(phase.epochs or 0):
                for x, y in loader:
                    optimiser.zero_grad()
                    batch_loss = F.cross_entropy(model(x), y)
                    batch_loss.backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
                    losses.append(batch_loss.item())
        state: Mapping[str, Tensor] = model.state_dict()
        reply = Reply(
            {name: state[name] for name in job.shared},
            {name: state[name] for name in job.personal[place]},
        )
        loss = sum(losses) / max(1, len(losses))
        return Local(client, reply, loss, self.data.size(client))

    def _samples(self, client: int) -> Dataset[Any]:
        if client not in self.held:
            x, y = (torch.from_numpy(array) for array in self.data.train(client))
            x = self.data.transform.prepare(x)
            augments = self.data.transform.augments
            self.held[client] = (
                Augmented(x, y, self.data.transform) if augments else TensorDataset(x, y)
            )
        return self.held[client]
