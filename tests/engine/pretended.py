"""The way of a GPU on a machine without one: every tensor where it belongs, steps as graphs. Run by
test_pretended.py, in a process of its own.

Nothing here says that a GPU's kernels are right; the tests that need a GPU do. What is said is that
no operation mixes devices, that nothing is read back or sent over while a graph is captured, and
that a replayed graph gives the answers of the loop.
"""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import srpfl
import tiny
from algorithms.every import KINDS, algorithm, model, remembered
from srpfl import participation as policies
from srpfl.core.initial import initial_model
from srpfl.engine import kernels
from srpfl.engine.loop import LoopEngine
from srpfl.engine.vectorised import VectorisedEngine

from . import zoo
from .cases import AWKWARD, CASES, distance, play
from .pretend import CaptureError, MixedError, OnDevice, pretended, registered
from .test_agreement import DOUBLE, reference

QUICK = (
    "fedavg",
    "fedrep-twice",
    "fedrep-in-training",
    "fedrep-augment",
    "fedrep-batchnorm-equal",
    "fedrep-masked-fixed",
)


@pytest.fixture(scope="module", autouse=True)
def device() -> None:
    """It must be there before PyTorch's first backward pass."""
    registered()
    gc.freeze()  # each capture collects garbage, and would look through all that was imported


def marked(names: Any, quick: tuple[str, ...]) -> list[Any]:
    slow = [name for name in names if name not in quick]
    return [*quick, *(pytest.param(name, marks=pytest.mark.slow) for name in slow)]


@pytest.mark.parametrize("name", marked(CASES, QUICK))
def test_steps_as_graphs_agree_with_the_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, expected = CASES[name], reference(name, "float64")
    # In double precision convolutions are fused, but leave the work to PyTorch's operations.
    monkeypatch.setattr(kernels, "available", lambda: True)
    with pretended(monkeypatch) as device:
        choices: dict[str, Any] = {"task": case.task, "precision": "float64", "device": "pretend"}
        outcome = play(VectorisedEngine(case.model(), case.data(), **choices), case)
        assert distance(outcome, expected) < DOUBLE
    assert device.graphs


@pytest.mark.parametrize("how", AWKWARD)
def test_steps_that_no_graph_can_hold_are_taken_without_one(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = AWKWARD[how]
    choices: dict[str, Any] = {"task": case.task, "precision": "float64"}
    expected = play(LoopEngine(case.model(), case.data(), **choices), case)
    with pretended(monkeypatch):
        engine = VectorisedEngine(case.model(), case.data(), **choices, device="pretend")
        with pytest.warns(srpfl.SrpflWarning) as said:
            outcome = play(engine, case)
        assert distance(outcome, expected) < DOUBLE
    [text] = {str(warning.message) for warning in said}
    assert "zoo.py, line" in text
    assert zoo.AWKWARD[how] in text
    assert "several times as long" in text


def test_a_capture_that_fails_leaves_steps_without_a_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A library may wait for the GPU by itself, which no trial shows."""
    case = CASES["fedavg"]

    def fails(*_graph: object, **_how: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nCompile with ...")

    with pretended(monkeypatch):
        monkeypatch.setattr(torch.cuda, "graph", fails)
        engine = VectorisedEngine(case.model(), case.data(), precision="float64", device="pretend")
        with pytest.warns(srpfl.SrpflWarning, match=r"not permitted when stream is capturing\)"):
            outcome = play(engine, case)
        assert distance(outcome, reference("fedavg", "float64")) < DOUBLE


def test_a_capture_that_runs_out_of_memory_is_tried_with_fewer_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case, short = CASES["fedavg"], [True]

    with pretended(monkeypatch):
        capture = torch.cuda.graph

        def spoilt(*graph: Any, **how: Any) -> Any:
            if short:
                short.clear()
                try:
                    raise torch.OutOfMemoryError("CUDA out of memory")
                finally:
                    raise RuntimeError("the capture cannot be ended")
            return capture(*graph, **how)

        monkeypatch.setattr(torch.cuda, "graph", spoilt)
        engine = VectorisedEngine(case.model(), case.data(), precision="float64", device="pretend")
        with warnings.catch_warnings():
            warnings.simplefilter("error", srpfl.SrpflWarning)
            outcome = play(engine, case)
        assert distance(outcome, reference("fedavg", "float64")) < DOUBLE
        assert engine.phases.most < 1 << 30


def check_run(
    monkeypatch: pytest.MonkeyPatch, net: nn.Module, *, within: float = DOUBLE, **choices: Any
) -> None:
    """A run on the pretended device is that of the loop, and its models can be had."""
    usual = {"algorithm": srpfl.FedRep(head_epochs=1), "rounds": 3, "evaluate_every": 3}
    chosen: dict[str, Any] = {**usual, "precision": "float64", "model": net, **choices}
    alone = tiny.simulate(**chosen)
    with pretended(monkeypatch):
        ready = chosen["algorithm"].prepared(initial_model(net, 0))
        where: dict[str, Any] = {"precision": "float64", "device": "pretend"}
        run = tiny.simulate(**{**chosen, "engine": VectorisedEngine(ready, tiny.data(), **where)})
        found, expected = remembered(run), remembered(alone)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.allclose(found[name].cpu(), value, rtol=within, atol=within), name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", srpfl.SrpflWarning)  # some never took part
            assert all(run.module_of(client) is not None for client in range(6))
    assert [e.value for e in run.evaluations] == pytest.approx([e.value for e in alone.evaluations])


@pytest.mark.parametrize("name", marked(KINDS, ("APFL", "MAPPER")))
def test_every_method(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_run(
        monkeypatch, model(name), algorithm=algorithm(name), participation=srpfl.Auto(start=2)
    )


POLICIES: dict[str, Any] = {
    "doubling": srpfl.Doubling(start=2, every=1),
    "flanp": policies.FlanpRule(start=2),
    "fedbuff": policies.FedBuff(sample=4, k=2),
    "fedasync": policies.FedAsync(sample=3),
    "compass": policies.Compass(sample=4),
    "oort": policies.Oort(sample=3),
    "divfl": policies.DivFL(sample=3),
    "deadline": policies.TypicalDeadline(partial=True),
}


@pytest.mark.parametrize("name", marked(POLICIES, ("fedbuff",)))
def test_every_kind_of_policy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_run(monkeypatch, tiny.model(), participation=POLICIES[name], rounds=4, evaluate_every=4)


AVERAGES = ("median", "trimmed:0.2", "krum:1", "geometric-median", "clipped:0.1", "secure")


@pytest.mark.slow
@pytest.mark.parametrize("average", [*AVERAGES, "private:0.5,0.1"])
def test_every_average(average: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: dict[str, Any] = {"participation": srpfl.Doubling(start=2, every=2)}  # secure wants two
    chosen["algorithm"] = srpfl.FedRep(head_epochs=1, average=average)
    check_run(monkeypatch, tiny.model(), **chosen)


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["int8", "top:0.2"])
@pytest.mark.parametrize("policy", ["doubling", "fedbuff"])
def test_every_wire(wire: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The server adds what comes to what it sent, which is in single precision.
    chosen: dict[str, Any] = {"within": 1e-6, "participation": POLICIES[policy]}
    check_run(monkeypatch, tiny.model(), algorithm=srpfl.FedAvg(wire=wire), **chosen)


def test_the_pretended_device_notices_what_a_gpu_would(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended(monkeypatch):
        there, here = torch.ones(3, device="pretend"), torch.ones(3)
        assert isinstance(there, OnDevice)
        with pytest.raises(MixedError):
            there + here
        graph: Any = torch.cuda.CUDAGraph()
        for mistake in (lambda: float(there.sum()), lambda: here.to("pretend"), there.nonzero):
            with pytest.raises(CaptureError), torch.cuda.graph(graph):
                mistake()
        with torch.cuda.graph(graph):
            twice = 2 * there
        there.fill_(4.0)
        graph.replay()
        assert twice.tolist() == [8.0] * 3
