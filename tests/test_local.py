"""Rules against exact references."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from srpfl.core.plan import Phase, Plan
from srpfl.core.rules import SGD, Adam, HessianFreeMAML
from srpfl.core.split import Params
from srpfl.errors import ConfigError


def quartic(w: Tensor) -> Tensor:
    """Small, smooth and not quadratic: its Hessian changes from place to place."""
    return (w**4).sum() + (w[0] * w[1] ** 2) + w.sin().sum()


def gradient(params: Params) -> Params:
    w = params["weight"].detach().requires_grad_()
    return {"weight": torch.autograd.grad(quartic(w), w)[0]}


START = torch.tensor([0.3, -0.7, 0.5], dtype=torch.float64)


@pytest.mark.parametrize(
    ("rule", "reference"),
    [
        (SGD(lr=0.1, weight_decay=0.0), lambda p: torch.optim.SGD(p, lr=0.1)),
        (
            SGD(lr=0.1, momentum=0.5, weight_decay=0.01),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5, weight_decay=0.01),
        ),
        (
            Adam(lr=0.05, weight_decay=0.01),
            lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.01),
        ),
    ],
)
def test_rules_are_pytorchs_optimisers(rule, reference) -> None:
    params = {"weight": START.clone()}
    state = rule.start(params, {})
    w = START.clone().requires_grad_()
    optimiser = reference([w])
    for _ in range(5):
        params, state = rule.step(gradient, params, state)
        optimiser.zero_grad()
        quartic(w).backward()
        optimiser.step()
    # Same formulas in another order of operations: a few units in the last place.
    torch.testing.assert_close(params["weight"], w.detach(), rtol=1e-12, atol=1e-14)


def test_weight_decay_spares_biases() -> None:
    params = {"fc.weight": torch.ones(1), "fc.bias": torch.ones(1)}
    none = {name: torch.zeros(1) for name in params}
    moved, _ = SGD(lr=1.0, weight_decay=0.1).step(lambda _: none, params, {})
    assert float(moved["fc.weight"]) == pytest.approx(0.9)
    assert float(moved["fc.bias"]) == 1.0


def exact_meta_step(alpha: float, beta: float) -> Tensor:
    """w − β(I − α∇²f(w))∇f(w − α∇f(w)), with the exact Hessian."""
    g = gradient({"weight": START})["weight"]
    adapted = gradient({"weight": START - alpha * g})["weight"]
    hessian = torch.autograd.functional.hessian(quartic, START)
    return START - beta * (adapted - alpha * hessian @ adapted)


def test_hf_maml_errs_as_delta_squared() -> None:
    def error(delta: float) -> float:
        rule = HessianFreeMAML(alpha=0.1, beta=0.5, delta=delta)
        moved, _ = rule.step(gradient, {"weight": START}, {})
        return float((moved["weight"] - exact_meta_step(0.1, 0.5)).norm())

    assert error(1e-3) < 1e-6
    # The central difference's error is of second order: a quarter when δ is halved.
    assert error(0.1) / error(0.05) == pytest.approx(4, rel=0.05)
    assert error(0.01) / error(0.005) == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize("lr", [0.0, -1.0, float("nan"), float("inf")])
def test_a_learning_rate_that_makes_no_sense_is_refused(lr: float) -> None:
    with pytest.raises(ConfigError, match="learning rate must be a positive, finite number"):
        SGD(lr=lr)


def test_work_is_epochs_or_steps() -> None:
    with pytest.raises(ConfigError, match="epochs or a number of steps"):
        Phase(frozenset(), epochs=1, steps=1)
    with pytest.raises(ConfigError, match="epochs or a number of steps"):
        Phase(frozenset())


def test_every_phase_begins_an_epoch_of_its_own() -> None:
    phases = tuple(Phase(frozenset("a"), steps=steps) for steps in (1, 1, 4))
    # Ten samples in batches of 4: 4, then 4, then 4 + 4 + 2 and 4 again.
    assert Plan(phases, SGD(), batch_size=4).sample_count(10) == 4 + 4 + 10 + 4


def test_the_last_smaller_batch_counts_as_a_step() -> None:
    plan = Plan((Phase(frozenset(), epochs=2), Phase(frozenset(), steps=3)), SGD(), batch_size=10)
    assert plan.step_count(25) == 2 * 3 + 3
    assert plan.sample_count(25) == 3 * 25
