"""Several steps as one CUDA graph: one launch instead of hundreds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

import torch
from torch import Tensor

from srpfl.core.split import Params
from srpfl.engine.capturable import Capturable
from srpfl.engine.step_kind import StepKind
from srpfl.engine.steps import Batch, Carried, advance, filled, flat, part_of, take_step
from srpfl.engine.updates import update_in_place


class CapturedSteps:
    """A fixed number of steps on fixed places in memory: inputs are copied in, results out.

    ``against`` says what of a step a graph cannot hold, if anything: then there is none, and the
    steps are taken one operation after another.
    """

    def __init__(
        self, kind: StepKind, carried: Carried, frozen: Params, common: Params, batches: Batch
    ) -> None:
        self.kind = kind
        self.carried, self.frozen, self.common, self.batches = filled(
            (carried, frozen, common, batches),
            [
                torch.empty_like(tensor).copy_(tensor)  # in the same layout
                for tensor in flat((carried, frozen, common, batches))
            ],
        )
        # Kernels are built and libraries set up outside of the capture.
        side = _side_stream(torch.cuda.current_device())
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), Capturable() as tried:
            self._step(0)
        torch.cuda.current_stream().wait_stream(side)
        self.against = tried.against
        if self.against is None:
            self.against = self._capture(side)

    def _capture(self, side: torch.cuda.Stream) -> str | None:
        """Make the graph; or say what came in the way that the trial did not show: libraries wait
        for the GPU by themselves."""
        here, pool = torch.cuda.current_stream(), torch.cuda.graph_pool_handle()
        self.graph = torch.cuda.CUDAGraph()
        try:
            with _no_collection(), torch.cuda.graph(self.graph, pool=pool, stream=side):
                self.losses = self._steps()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            # PyTorch leaves a capture that failed where it was.
            torch.cuda.set_stream(here)
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
            torch.cuda.synchronize()  # an error that is not of the capture shows itself here
            first = error.__context__ or error
            if isinstance(first, torch.OutOfMemoryError):  # which fewer clients may not run into
                raise first from None
            return f"one of its layers: {str(first).splitlines()[0]}"
        return None

    def begin(self, carried: Carried, frozen: Params, common: Params) -> None:
        self._copy(flat((self.carried, self.frozen, self.common)), flat((carried, frozen, common)))

    def run(self, batches: Batch) -> Tensor:
        self._copy(flat(self.batches), flat(batches))
        if self.against is not None:
            return self._steps()
        self.graph.replay()
        return self.losses.clone()

    def _steps(self) -> Tensor:
        return torch.stack([self._step(step) for step in range(len(self.batches.y))])

    def _step(self, step: int) -> Tensor:
        kind, now = self.kind, self.carried
        batch = part_of(self.batches, step)
        if kind.fused:
            losses, grads, statistics = kind.objective.losses_and_gradient(
                now.params, now.statistics, self.frozen, self.common, batch
            )
            update_in_place(kind.rule, now, grads)
            self._copy(flat(now.statistics), flat(statistics))
            return losses
        function = advance if kind.ragged else take_step
        after, losses = function(kind.objective, kind.rule, now, self.frozen, self.common, batch)
        self._copy(flat(now), flat(after))
        return losses

    @staticmethod
    def _copy(to: list[Tensor], given: list[Tensor]) -> None:
        with torch.no_grad():
            for place, tensor in zip(to, given, strict=True):
                place.copy_(tensor)


@cache
def _side_stream(_device: int) -> torch.cuda.Stream:
    """One for all: libraries hold memory for every stream that they have seen, for good."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


@contextmanager
def _no_collection() -> Iterator[None]:
    """An old graph that happens to be collected during a capture would spoil it."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
