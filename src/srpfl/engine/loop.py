"""The plain engine: one client after another, one step after another. The reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from srpfl.core.devices import on_gpu
from srpfl.core.plan import Phase, Plan
from srpfl.core.rules import ABOUT, STEPS, Gradient, LossAndGradient, RuleState, kept, resumed
from srpfl.core.slots import Given, Reply, Slots, Trained, about
from srpfl.core.split import Params, combine, fixed_of
from srpfl.core.streams import streams
from srpfl.core.trees import Tree, take
from srpfl.data.base import Federated
from srpfl.data.joined import joined
from srpfl.engine.base import GRADIENT, Job, Local, Score, numbered_phases, seen_by_rules
from srpfl.engine.batchnorm import with_noted_statistics
from srpfl.engine.draws import Draws, draw
from srpfl.engine.dropout import key_names, with_keyed_dropout
from srpfl.engine.fit import draws_itself
from srpfl.engine.modes import set_modes
from srpfl.engine.precision import STEP, Precision
from srpfl.engine.recomputed import with_recomputed_blocks
from srpfl.engine.steps import gradient_of
from srpfl.engine.store import tensors
from srpfl.engine.threads import one_thread, quiet
from srpfl.task import Classification, Task, summed

TEST_BATCH = 1000


class LoopEngine:
    """Trains clients in turn on one device."""

    def __init__(
        self,
        model: nn.Module,
        data: Federated,
        *,
        task: Task = Classification(),
        device: str | torch.device = "cpu",
        precision: str = "float32",
    ) -> None:
        self.precision, self.device = Precision.of(precision), torch.device(device)
        self.dtype = self.precision.kept
        net = with_recomputed_blocks(with_noted_statistics(with_keyed_dropout(model)))
        self.model = self.precision.placed(net, self.device)
        self.forward = self.precision.called(self.model, fixed_of(self.model))
        self.keys = key_names(self.model)
        self.data, self.task = joined(data), task
        self.draws_itself = draws_itself(model, data) is not None

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        with one_thread(), self.precision.switched(), quiet():
            return [[self._train(job, place) for place in range(len(job.clients))] for job in jobs]

    def test(self, jobs: Sequence[Job]) -> list[list[Score]]:
        with one_thread(), self.precision.switched(), quiet():
            return [[self._test(job, place) for place in range(len(job.clients))] for job in jobs]

    def _train(self, job: Job, place: int) -> Local:
        x, y = self._samples("train", job, place)
        given = self._given(job, place, len(y))
        state, own = self._state(given), dict(given.own)
        gradient = self._full_gradient(job, state, x, y) if job.wants_gradient else {}
        loss, steps = self._carry_out(job, place, given, state, own, x, y)
        trained = Trained(
            shared={name: state[name] for name in given.shared},
            personal={name: state[name] for name in given.personal},
            own=own,
            steps=torch.tensor(float(steps), dtype=self.dtype, device=self.device),
            gradient=gradient,
        )
        if job.finisher is None:
            reply = Reply(trained.shared, trained.personal, trained.own)
        else:
            reply = job.finisher.finish(given, trained)
        if gradient:
            reply = reply._replace(sent={**reply.sent, GRADIENT: gradient})
        return Local(job.clients[place], reply, loss, len(y))

    def _test(self, job: Job, place: int) -> Score:
        given = self._given(job, place, self.data.size(self._number(job, place)))
        state = self._state(given)
        if any(plan.phases for plan in job.plans):
            x, y = self._samples("train", job, place)
            self._carry_out(job, place, given, state, {}, x, y)
        x, y = self._samples("test", job, place)
        self.model.eval()
        state[STEP] = y.new_zeros((), dtype=torch.int64)
        total, weight = torch.zeros(1, dtype=torch.float64), 0.0
        with torch.no_grad(), self._random(state[STEP]):
            for start in range(0, len(y), TEST_BATCH):
                some = slice(start, start + TEST_BATCH)
                inputs = self.data.transform.prepare(take(x, some), self.dtype)
                sums, weights = summed(self.task.score(self.forward(state, inputs)[0], y[some]))
                total = total + sums.sum(0).cpu()
                weight += float(weights.sum())
        return Score(job.clients[place], tuple(total.tolist()), weight)

    def _carry_out(
        self, job: Job, place: int, given: Given, state: Params, own: Slots, x: Tree, y: Tensor
    ) -> tuple[float, int]:
        """Do the job's plans for one client, changing ``state`` and its own slots; return the first
        plan's loss and the number of steps on the model."""
        seen = seen_by_rules(given)
        losses: list[float] = []
        steps = 0
        for plan, numbers in zip(job.plans, numbered_phases(job.plans), strict=True):
            at = state
            if plan.slot is not None:
                at = {**self._state(given), **{n: v.clone() for n, v in own[plan.slot].items()}}
            loss, taken, moments = self._do(job, place, plan, numbers, at, seen, x, y)
            losses.append(loss)
            own.update({slot: {**own[slot], **moments.get(slot, {})} for slot in plan.keeps})
            if plan.slot is None:
                steps += taken
            else:
                own[plan.slot] = {name: at[name] for name in own[plan.slot]}
        return losses[0] if losses else 0.0, steps

    def _do(
        self,
        job: Job,
        place: int,
        plan: Plan,
        numbers: Sequence[int],
        state: Params,
        given: Slots,
        x: Tree,
        y: Tensor,
    ) -> tuple[float, int, RuleState]:
        """One plan, changing ``state``; the last phase's loss, the number of steps, and what the
        rule's state is in the end."""
        optimiser: RuleState = {}
        mean_loss, taken = 0.0, 0
        steps = torch.tensor(float(plan.step_count(len(y))), dtype=self.dtype, device=self.device)
        given = {**given, ABOUT: {**given[ABOUT], STEPS: steps}}
        for number, phase in zip(numbers, plan.phases, strict=True):
            draws = self._draws(job, place, plan, phase, number, len(y))
            trained = {n: state[n] for n, _ in self.model.named_parameters() if n in phase.trains}
            if not trained:
                continue
            moments = resumed(plan.rule.start(trained, given), optimiser)
            losses: list[Tensor] = []
            set_modes(self.model, phase.trains, job.shared)
            for step in range(draws.steps[0]):
                gradient = self._batch_gradient(state, x, y, draws, step, losses)
                trained, moments = plan.rule.step(gradient, trained, moments)
            state.update(trained)
            optimiser = kept(optimiser, moments)
            taken += draws.steps[0]
            if losses:
                mean_loss = float(torch.stack(losses).mean())
        return mean_loss, taken, optimiser

    def _draws(
        self, job: Job, place: int, plan: Plan, phase: Phase, number: int, size: int
    ) -> Draws:
        client = [job.clients[place]]
        transform = self.data.transform
        return draw([job], client, phase, number, plan.batch_size, [size], transform, self.device)

    def _batch_gradient(
        self, state: Params, x: Tree, y: Tensor, draws: Draws, step: int, losses: list[Tensor]
    ) -> Gradient:
        """The gradient function of one step's batch; its first call notes the loss."""
        picked = draws.batches[0, step]
        present = picked >= 0
        picked = picked[present]
        chosen, targets = take(x, picked), y[picked]
        if draws.augment is not None:
            moves = draws.augment[0, step, present]
            chosen = self.data.transform.augment(chosen, moves.long())
        inputs = self.data.transform.prepare(chosen, self.dtype)
        for name in (*self.keys, STEP):
            state[name] = draws.dropout[0, step]
        noted = len(losses)

        def both(params: Params) -> tuple[Tensor, Params]:
            with self._random(draws.dropout[0, step]):
                loss, grads, statistics = self._loss_and_gradient(state, params, inputs, targets)
            state.update(statistics)
            if len(losses) == noted:
                losses.append(loss)
            return loss, grads

        return LossAndGradient(both)

    @contextmanager
    def _random(self, key: Tensor) -> Iterator[None]:
        """For models that use global streams: in each step these begin at the step's key."""
        if not self.draws_itself:
            yield
            return
        with streams(int(key), [self.device] if on_gpu(self.device) else []):
            yield

    def _loss_and_gradient(
        self, state: Params, params: Params, inputs: Tree, targets: Tensor
    ) -> tuple[Tensor, Params, Params]:
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        outputs, statistics = self.forward({**state, **leaves}, inputs)
        loss = _mean(self.task.loss(outputs, targets))
        grads = gradient_of(loss, leaves)
        # Embeddings may have sparse ones, which rules do not know.
        dense = {name: grad.to_dense() for name, grad in grads.items()}
        after = {name: value.detach() for name, value in statistics.items()}
        return loss.detach(), dense, after

    def _full_gradient(self, job: Job, state: Params, x: Tree, y: Tensor) -> Params:
        """The gradient of the client's mean loss at what the server sent, without dropout."""
        self.model.eval()
        names = [n for n, p in self.model.named_parameters() if p.requires_grad and n in job.shared]
        params = {name: state[name] for name in names}
        inputs = self.data.transform.prepare(x, self.dtype)
        return self._loss_and_gradient(state, params, inputs, y)[1]

    def _state(self, given: Given) -> Params:
        """A client's model. A pass may write into buffers and weights (an embedding with a largest
        norm does), so all of them are its own."""
        state = combine(given.shared, given.personal)
        return {name: value.clone() for name, value in state.items()}

    def _number(self, job: Job, place: int) -> int:
        return self.data.number(job.run, job.clients[place])

    def _samples(self, part: str, job: Job, place: int) -> tuple[Tree, Tensor]:
        client = self._number(job, place)
        samples = self.data.train(client) if part == "train" else self.data.test(client)
        return tensors(samples, self.device)

    def _given(self, job: Job, place: int, samples: int) -> Given:
        """What the client has, on the device."""

        def copied(params: Params) -> Params:
            return {name: self.precision.cast(value, self.device) for name, value in params.items()}

        given = job.given(place)
        return Given(
            copied(given.shared),
            copied(given.personal),
            {slot: copied(params) for slot, params in given.server.items()},
            {slot: copied(params) for slot, params in given.own.items()},
            about(job.clients[place], samples, job.round, self.dtype, self.device),
        )


def _mean(losses: Any) -> Tensor:
    if isinstance(losses, tuple):
        sums, weights = losses
        losses = sums.sum() / weights.sum().clamp(min=1e-12)
    mean: Tensor = losses.mean()
    return mean
