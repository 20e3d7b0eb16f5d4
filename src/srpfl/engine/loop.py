"""The plain engine: one client after another, one step after another. The reference."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from srpfl.data.base import Federated
from srpfl.engine.base import Job, Local, Loss, Score, cross_entropy
from srpfl.engine.draws import Draws, draw
from srpfl.engine.dropout import key_names, with_keyed_dropout
from srpfl.engine.fit import draws_itself
from srpfl.engine.precision import Precision, called
from srpfl.engine.store import tensors
from srpfl.engine.threads import one_thread
from srpfl.local import Gradient, RuleState, kept, resumed
from srpfl.split import Params, combine

TEST_BATCH = 1000


class LoopEngine:
    """Trains clients in turn on one device."""

    def __init__(
        self,
        model: nn.Module,
        data: Federated,
        *,
        loss: Loss = cross_entropy,
        device: str | torch.device = "cpu",
        precision: str = "float32",
    ) -> None:
        self.precision, self.device = Precision.of(precision), torch.device(device)
        self.dtype = self.precision.kept
        self.model = with_keyed_dropout(model).to(device=self.device, dtype=self.dtype)
        self.forward = self.precision.lowered(called(self.model))
        self.keys = key_names(self.model)
        self.data, self.loss = data, loss
        self.draws_itself = draws_itself(model, data)

    def train(self, job: Job) -> list[Local]:
        with one_thread(), self.precision.switched():
            return [self._train(job, place) for place in range(len(job.clients))]

    def test(self, job: Job) -> list[Score]:
        with one_thread(), self.precision.switched():
            return [self._test(job, place) for place in range(len(job.clients))]

    def _train(self, job: Job, place: int) -> Local:
        client = job.clients[place]
        state = self._start(job, place)
        x, y = tensors(self.data.train(client), self.device)
        gradient = self._full_gradient(job, state, x, y) if job.wants_gradient else None
        loss = self._carry_out(job, client, state, x, y)
        personal = {name: state[name] for name in job.personal[place]}
        shared = {name: state[name] for name in job.shared}
        return Local(client, shared, personal, loss, len(y), gradient)

    def _test(self, job: Job, place: int) -> Score:
        client = job.clients[place]
        state = self._start(job, place)
        if job.plan.phases:
            self._carry_out(job, client, state, *tensors(self.data.train(client), self.device))
        x, y = tensors(self.data.test(client), self.device)
        self.model.eval()
        correct = 0
        with torch.no_grad():
            for start in range(0, len(y), TEST_BATCH):
                some = slice(start, start + TEST_BATCH)
                inputs = self.data.transform.prepare(x[some], self.dtype)
                correct += int((self.forward(state, inputs).argmax(1) == y[some]).sum())
        return Score(client, correct, len(y))

    def _carry_out(self, job: Job, client: int, state: Params, x: Tensor, y: Tensor) -> float:
        """Do the job's plan for one client, changing ``state``; return the last phase's loss."""
        rule = job.plan.rule
        optimiser: RuleState = {}
        mean_loss = 0.0
        for number, phase in enumerate(job.plan.phases):
            draws = draw([job], [client], number, [len(y)], self.data.transform, self.device)
            trained = {n: state[n] for n, _ in self.model.named_parameters() if n in phase.trains}
            moments = resumed(rule, optimiser, trained)
            if not trained:
                continue
            losses: list[Tensor] = []
            modes = Modes(self.model, phase.trains, job.shared)
            for step in range(draws.steps[0]):
                gradient = self._batch_gradient(state, x, y, draws, step, losses, modes)
                trained, moments = rule.step(gradient, trained, moments)
            state.update(trained)
            optimiser = kept(optimiser, moments)
            if losses:
                mean_loss = float(torch.stack(losses).mean())
        return mean_loss

    def _batch_gradient(
        self,
        state: Params,
        x: Tensor,
        y: Tensor,
        draws: Draws,
        step: int,
        losses: list[Tensor],
        modes: Modes,
    ) -> Gradient:
        """The gradient function of one step's batch; its first call notes the loss."""
        picked = draws.batches[0, step]
        present = picked >= 0
        picked = picked[present]
        images, targets = x[picked], y[picked]
        if draws.augment is not None:
            chosen = draws.augment[0, step, present]
            images = self.data.transform.augment(images, chosen.long())
        inputs = self.data.transform.prepare(images, self.dtype)
        modes.switch(len(targets))
        for name in self.keys:
            state[name] = draws.dropout[0, step]
        first_call = True

        def gradient(params: Params) -> Params:
            nonlocal first_call
            with self._random(draws.dropout[0, step]):
                loss, grads = self._loss_and_gradient(state, params, inputs, targets)
            if first_call:
                losses.append(loss)
                first_call = False
            return grads

        return gradient

    @contextmanager
    def _random(self, key: Tensor) -> Iterator[None]:
        """For models that use PyTorch's own stream: in each step it begins at the step's key."""
        if not self.draws_itself:
            yield
            return
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int(key))
            yield

    def _loss_and_gradient(
        self, state: Params, params: Params, inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, Params]:
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        outputs = self.forward({**state, **leaves}, inputs)
        loss = self.loss(outputs, targets).mean()
        values = list(leaves.values())
        # What the model does not use has no gradient, and stays but for weight decay.
        grads = torch.autograd.grad(loss, values, allow_unused=True, materialize_grads=True)
        return loss.detach(), dict(zip(leaves, grads, strict=True))

    def _full_gradient(self, job: Job, state: Params, x: Tensor, y: Tensor) -> Params:
        """The gradient of the client's mean loss at what the server sent, without dropout."""
        self.model.eval()
        names = [n for n, p in self.model.named_parameters() if p.requires_grad and n in job.shared]
        params = {name: state[name] for name in names}
        inputs = self.data.transform.prepare(x, self.dtype)
        return self._loss_and_gradient(state, params, inputs, y)[1]

    def _start(self, job: Job, place: int) -> Params:
        # Clones, because BatchNorm writes its statistics into the tensors that it is given.
        state = combine(job.shared, job.personal[place])
        return {
            name: self.precision.cast(value, self.device).clone() for name, value in state.items()
        }


class Modes:
    """Training mode, except for normalisation layers that this phase does not train: a frozen
    part keeps its running statistics too. A layer without parameters goes with its part. One sample
    alone has no statistics, and is normalised with those so far."""

    def __init__(self, model: nn.Module, trained: Collection[str], shared: Collection[str]) -> None:
        model.train()
        self.updated: list[nn.Module] = []
        for name, module in model.named_modules():
            if not isinstance(module, _NormBase):
                continue
            own = {f"{name}.{parameter}" for parameter, _ in module.named_parameters()}
            if not own:
                place = f"{name}.running_mean" in shared
                own = {other for other in trained if (other in shared) == place}
            if own.isdisjoint(trained) and module.track_running_stats:
                module.eval()
            elif module.track_running_stats:
                self.updated.append(module)

    def switch(self, samples: int) -> None:
        """Before a step with so many samples."""
        for module in self.updated:
            module.train(samples > 1)
