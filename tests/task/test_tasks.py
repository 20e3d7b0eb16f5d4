"""Tasks against plain PyTorch and NumPy, and what a user hears who mixes them up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import srpfl
import tiny
from srpfl.data.base import Pooled, Samples
from srpfl.errors import ConfigError, DataError, DivergedError
from srpfl.models import MLP
from srpfl.task import Task, summed

ENGINES = pytest.mark.parametrize("engine", ["loop", "vectorised"])


def numbers(y: Any, x: Any = None, classes: int = 0, clients: int = 4) -> Pooled:
    rng = np.random.default_rng(0)
    y = np.asarray(y)
    x = rng.normal(size=(len(y), 5)).astype(np.float32) if x is None else x
    parts = np.array_split(np.arange(len(y)), clients)
    return Pooled("made up", Samples(x, y), Samples(x, y), parts, parts, classes)


def played(data: Pooled, model: nn.Module, task: Task, **choices: Any) -> srpfl.Run:
    usual: dict[str, Any] = {"algorithm": srpfl.FedAvg(), "rounds": 2, "engine": "loop"}
    return srpfl.simulate(data=data, model=model, task=task, **{**usual, **choices})


def scored(task: Task, outputs: Tensor, y: Tensor) -> float:
    sums, weights = summed(task.score(outputs, y))
    return task.value(sums.sum(0).tolist(), float(weights.sum()))


@pytest.mark.parametrize("shape", [(20,), (20, 3)])
def test_regression_is_what_numpy_says(shape: tuple[int, ...]) -> None:
    outputs, y = torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)
    apart = (outputs - y).numpy()
    assert scored(srpfl.Regression(metric="mse"), outputs, y) == pytest.approx((apart**2).mean())
    rmse = math.sqrt((apart**2).mean())
    assert scored(srpfl.Regression(metric="rmse"), outputs, y) == pytest.approx(rmse)
    assert scored(srpfl.Regression(metric="mae"), outputs, y) == pytest.approx(np.abs(apart).mean())
    r2 = 1 - (apart**2).mean() / y.numpy().var()
    assert scored(srpfl.Regression(metric="r2"), outputs, y) == pytest.approx(r2)


def test_next_token_counts_tokens_and_not_samples() -> None:
    outputs = torch.randn(3, 5, 7, dtype=torch.float64)
    y = torch.randint(7, (3, 5))
    y[0, 1:] = -100
    sums, weights = srpfl.NextToken().loss(outputs, y)
    expected = F.cross_entropy(outputs.flatten(0, 1), y.flatten(), ignore_index=-100)
    assert float(sums.sum() / weights.sum()) == pytest.approx(float(expected))
    perplexity = scored(srpfl.NextToken(metric="perplexity"), outputs, y)
    assert perplexity == pytest.approx(math.exp(float(expected)))
    right = (outputs.argmax(2) == y)[y != -100].double().mean()
    assert scored(srpfl.NextToken(), outputs, y) == pytest.approx(float(right))


def test_multi_label_is_the_share_of_labels_that_are_right() -> None:
    outputs, y = torch.randn(6, 4), torch.randint(2, (6, 4))
    right = float(((outputs > 0) == (y > 0)).double().mean())
    assert scored(srpfl.MultiLabel(), outputs, y) == pytest.approx(right)
    expected = F.binary_cross_entropy_with_logits(outputs, y.float())
    assert float(srpfl.MultiLabel().loss(outputs, y).mean()) == pytest.approx(float(expected))


@ENGINES
def test_a_line_is_learnt(engine: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(80, 5)).astype(np.float32)
    y = x @ np.arange(5.0) + 1
    algorithm = srpfl.FedAvg(epochs=5, rule=srpfl.SGD(lr=0.05, weight_decay=0.0))
    run = played(
        numbers(y, x),
        nn.Linear(5, 1),
        srpfl.Regression(),
        algorithm=algorithm,
        rounds=20,
        engine=engine,
        stop_at=0.05,
    )
    assert run.metric == "rmse"
    assert not run.higher_is_better
    assert len(run.rounds) < 20, "it stops when the error is low enough"
    assert run.scores[-1].mean <= 0.05 < run.scores[0].mean
    assert run.time_to(0.05) == run.scores[-1].time
    assert run.time_to(1e9) == run.scores[0].time


class Angle(Task):
    """A task of a user's own, in a few lines."""

    metric, higher_is_better = "error", False

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return 1 - (outputs[:, 0] - y).cos()

    def score(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (outputs[:, 0] - y).abs()


@ENGINES
def test_a_task_of_ones_own(engine: str) -> None:
    run = played(numbers(np.linspace(-1, 1, 40)), MLP(5, (4,), classes=1), Angle(), engine=engine)
    assert [record.metric for record in run.evaluations] == ["error", "error"]
    assert not run.evaluations[0].higher_is_better


@pytest.mark.parametrize(
    ("y", "task", "classes", "says"),
    [
        (np.linspace(0, 1, 40), srpfl.Classification(), 3, r"labels must be whole .*Regression"),
        (np.zeros((40, 2), int), srpfl.Classification(), 3, r"labels must be whole .*MultiLabel"),
        (np.full(40, 3), srpfl.Classification(), 3, "from 0 to 2"),
        (np.full(40, np.nan), srpfl.Regression(), 0, "labels must be finite"),
        (np.array(["a"] * 40), srpfl.Regression(), 0, "labels must be real numbers"),
        (np.full((40, 2), 2), srpfl.MultiLabel(), 0, "rows of 0 and 1"),
        (np.zeros(40), srpfl.NextToken(), 0, "rows of whole numbers"),
        (np.full((40, 2), -3), srpfl.NextToken(), 0, "rows of whole numbers"),
    ],
)
def test_labels_that_do_not_fit_the_task_are_refused(
    y: Any, task: Task, classes: int, says: str
) -> None:
    with pytest.raises(DataError, match=says):
        played(numbers(y, classes=classes), nn.Linear(5, 3), task)


@pytest.mark.parametrize(
    ("y", "outputs", "task", "says"),
    [
        (
            np.zeros(40),
            3,
            srpfl.Regression(),
            "returns 3 numbers per sample and the labels are one",
        ),
        (np.zeros((40, 2)), 3, srpfl.Regression(), "returns 3 numbers .* labels are 2"),
        (np.zeros((40, 2), int), 3, srpfl.MultiLabel(), "returns 3 numbers .* labels are 2"),
        (np.zeros((40, 2), int), 3, srpfl.NextToken(), "samples x places x tokens"),
        (np.zeros(40, int), 2, srpfl.Classification(), "tells 2 classes apart and the data has 3"),
    ],
)
def test_outputs_that_do_not_fit_the_labels_are_refused(
    y: Any, outputs: int, task: Task, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        played(numbers(y, classes=3), nn.Linear(5, outputs), task)


class Nowhere(Angle):
    def score(self, outputs: Tensor, y: Tensor) -> Tensor:
        return outputs[:, 0] * math.nan


class Mean(Angle):
    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return super().loss(outputs, y).mean()


def test_a_score_that_is_not_a_number_is_one_sentence() -> None:
    with pytest.raises(DivergedError, match="global error after round 1 is nan"):
        played(numbers(np.zeros(40)), nn.Linear(5, 1), Nowhere(), evaluate_every=1)


def test_a_loss_that_is_one_number_for_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="one number per sample"):
        played(numbers(np.zeros(40)), nn.Linear(5, 1), Mean())


class Plain(Task):
    loss = Angle.loss


class Short(Angle):
    def score(self, outputs: Tensor, y: Tensor) -> Tensor:
        return outputs[1:, 0]


class Broken(Angle):
    def score(self, outputs: Tensor, y: Tensor) -> Tensor:
        raise KeyError("it broke")


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (Plain(), "the score of Plain cannot .*: Plain has no score"),
        (Short(), r"the score of Short must be one number per sample.* \(1, 1\) for 2 samples"),
        (Broken(), "the score of Broken cannot judge the model's outputs: 'it broke'"),
    ],
)
def test_a_score_that_cannot_be_used_is_one_sentence(task: Task, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        played(numbers(np.zeros(40)), nn.Linear(5, 1), task)


class Spread(Angle):
    """The same number for all samples of a batch: right for one client, wrong for several."""

    def score(self, outputs: Tensor, y: Tensor) -> Tensor:
        return super().score(outputs, y).mean().expand(len(y))


def test_a_score_that_looks_at_other_samples_is_taken_one_client_after_another() -> None:
    chosen: dict[str, Any] = {"model": nn.Linear(5, 1), "evaluate_every": 1}
    data = numbers(np.linspace(-1, 1, 42))  # not the same number for all
    plain = played(data, task=Spread(), **chosen)
    with pytest.warns(srpfl.SrpflWarning, match="score of Spread .* or on how many"):
        run = played(data, task=Spread(), **chosen, engine="auto")
    assert [e.value for e in run.evaluations] == [e.value for e in plain.evaluations]


def test_bytes_and_whole_numbers_stay_what_they_are() -> None:
    bytes_ = np.arange(40, dtype=np.uint8)[:, None] % 7
    data = numbers(np.zeros(40, int), bytes_, classes=3)
    with pytest.raises(ConfigError, match=r"uint8.*|int64.*"):
        played(data, nn.Linear(1, 3), srpfl.Classification())
    seen: list[torch.dtype] = []

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.dtype)
            logits: Tensor = self.head(self.embed(x[:, 0]))
            return logits

    for precision in ("float32", "bfloat16", "float64"):
        played(data, Looks(), srpfl.Classification(), precision=precision)
    assert set(seen) == {torch.int64}


def test_a_large_token_is_not_rounded_in_low_precision() -> None:
    """999 has no place of its own among bfloat16's numbers."""
    ids = np.full((40, 1), 999)
    table = nn.Embedding(1000, 2)
    with torch.no_grad():
        table.weight.zero_()[999] = torch.tensor([0.0, 50.0])

    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = table, nn.Linear(2, 2)
            self.table.requires_grad_(False)
            nn.init.eye_(self.head.weight)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(self.table(x[:, 0]))
            return logits

    data = numbers(np.ones(40, int), ids, classes=2)
    for engine in ("loop", "vectorised"):
        run = played(
            data,
            Table(),
            srpfl.Classification(),
            engine=engine,
            precision="bfloat16",
            pretrained=True,
        )
        assert run.scores[-1].mean == 1.0


def test_stopping_follows_the_metric() -> None:
    with pytest.raises(ConfigError, match="rmse to stop at must be a number"):
        played(numbers(np.zeros(40)), nn.Linear(5, 1), srpfl.Regression(), stop_at=math.inf)
    with pytest.raises(ConfigError, match="a fraction above 0"):
        tiny.simulate(stop_at=1.5)
