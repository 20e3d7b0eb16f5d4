"""Models as people write them: frozen, tied and unused weights, normalisation, dropout."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import srpfl
import tiny
from srpfl.clock.base import Work
from srpfl.core.initial import initial_model
from srpfl.core.split import state_of
from srpfl.engine.base import Job
from srpfl.engine.dropout import dropped, with_keyed_dropout
from srpfl.engine.loop import LoopEngine
from srpfl.engine.precision import called
from srpfl.errors import ConfigError
from srpfl.loop.watchers import Watcher
from srpfl.runs.records import RoundRecord

STACKED = pytest.mark.parametrize("engine", ["loop", "vectorised"])


def network(*body: nn.Module, wide: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), *body, nn.ReLU(), nn.Linear(wide, 3))


def played(model: nn.Module, **changes: Any) -> srpfl.Run:
    return tiny.simulate(model=model, algorithm=srpfl.FedRep(personal=["3"]), **changes)


def shared(run: srpfl.Run) -> dict[str, Tensor]:
    assert run.state is not None
    return run.state.shared


@STACKED
def test_frozen_parameters_are_neither_sent_nor_averaged_nor_saved(
    engine: str, tmp_path: Path
) -> None:
    model = network(nn.Linear(8, 8))
    model[1].weight.requires_grad_(False)
    run = played(model, engine=engine, out=tmp_path / "run")
    start = state_of(initial_model(model, seed=0))
    assert "1.weight" not in shared(run)
    assert not torch.equal(shared(run)["1.bias"], start["1.bias"])
    for file in (tmp_path / "run").rglob("*.safetensors"):
        assert not any("1.weight" in name for name in load_file(file))


def test_the_clock_is_not_charged_for_frozen_parameters() -> None:
    model = network(nn.Linear(8, 8))
    moved: list[int] = []

    class Noting(srpfl.FixedExponential):
        def times(self, seed: int, round: int, clients: Any, population: int, work: Work) -> Any:
            moved.append(work.up)
            return super().times(seed, round, clients, population, work)

    for frozen in (False, True):
        model[1].weight.requires_grad_(not frozen)
        played(model, clock=Noting(), rounds=1)
    assert moved[0] - moved[1] == 8 * 8 * 4


@STACKED
def test_a_phase_whose_parameters_are_all_frozen_does_nothing(engine: str) -> None:
    model = network(nn.Identity())
    model[0].requires_grad_(False)
    run = played(model, engine=engine)
    start = state_of(initial_model(model, seed=0))
    assert not shared(run)  # so each client trains a head of its own on fixed features
    assert run.parts is not None
    assert not torch.equal(run.parts.of(run.rounds[-1].participants[0])["3.bias"], start["3.bias"])
    assert run.rounds[-1].loss > 0


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.again = nn.Linear(4, 4)
        self.again.weight = self.inner.weight
        self.head = nn.Linear(4, 3)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(F.relu(self.again(F.relu(self.inner(x)))))
        return outputs


def test_tied_and_unused_weights_train_and_all_engines_agree() -> None:
    runs = [
        tiny.simulate(model=Tied(), algorithm=srpfl.FedRep(), engine=engine, precision="float64")
        for engine in ("loop", "vectorised", "workers")
    ]
    first = shared(runs[0])
    assert "inner.weight" in first
    assert "again.weight" not in first
    start = state_of(initial_model(Tied(), seed=0))
    assert not torch.equal(first["inner.weight"].float(), start["inner.weight"])
    assert torch.equal(first["unused.bias"].float(), start["unused.bias"])  # not even decayed
    for other in map(shared, runs[1:]):
        for name, value in first.items():
            torch.testing.assert_close(other[name], value, rtol=1e-9, atol=0)


def test_a_split_through_tied_weights_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'inner\.weight' and 'again\.weight' are one tensor"):
        tiny.simulate(model=Tied(), algorithm=srpfl.FedRep(personal=["again"]))


class Stops(Watcher):
    def round(self, record: RoundRecord) -> None:
        if record.round == 2:
            raise KeyboardInterrupt


@STACKED
@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout1d])
def test_dropout_of_any_kind_resumes_exactly(kind: Any, engine: str, tmp_path: Path) -> None:
    body = network(nn.Identity())
    model = nn.Sequential(nn.Unflatten(1, (2, 2)), kind(0.5), nn.Flatten(), *body)
    choices: dict[str, Any] = {"model": model, "algorithm": srpfl.FedAvg(), "engine": engine}
    whole = tiny.simulate(**choices)
    with pytest.raises(KeyboardInterrupt):
        tiny.simulate(**choices, out=tmp_path / "run", watchers=[Stops()])
    assert tiny.same(
        shared(whole), shared(tiny.simulate(**choices, out=tmp_path / "run", resume=True))
    )
    plain = tiny.simulate(
        **{**choices, "model": nn.Sequential(nn.Identity(), nn.Identity(), nn.Identity(), *body)}
    )
    assert not tiny.same(shared(whole), shared(plain))


def test_channel_dropout_drops_whole_channels() -> None:
    layer = with_keyed_dropout(nn.Sequential(nn.Dropout2d(0.5))).train()
    kept = layer(torch.ones(50, 8, 3, 3)).flatten(2)
    assert torch.equal(kept.amin(2), kept.amax(2))
    assert set(kept.flatten().tolist()) == {0.0, 2.0}
    assert 0.4 < float((kept[:, :, 0] > 0).float().mean()) < 0.6  # 400 fair coins


@pytest.mark.parametrize("shape", [(2, 9, 7), (5, 3, 7), (5, 9, 4)])
def test_what_a_unit_loses_does_not_depend_on_how_many_there_are(shape: tuple[int, ...]) -> None:
    """A batch, or a text in it, is filled up to the length of others."""
    whole, part = (
        dropped(torch.ones(size), 0.5, torch.tensor(3), 1) for size in ((5, 9, 7), shape)
    )
    assert torch.equal(part, whole[tuple(slice(size) for size in shape)])
    for place in range(3):  # and no two places share their fate
        assert not torch.equal(whole.select(place, 0), whole.select(place, 1))


@STACKED
def test_a_phase_whose_parameters_are_not_used_is_one_sentence(engine: str) -> None:
    with pytest.raises(ConfigError, match=r"does not depend on .* train \('unused\.weight' and"):
        tiny.simulate(model=Tied(), algorithm=srpfl.FedRep(personal=["unused"]), engine=engine)


class Frugal(nn.Module):
    """One dropout layer for every place, as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.drop = nn.Linear(4, 3), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        once, twice = self.drop(x), self.drop(x)
        return torch.cat([once, twice], dim=1)


def test_each_use_of_a_dropout_layer_has_a_mask_of_its_own_and_each_pass_the_same_ones() -> None:
    from srpfl.engine.precision import called

    model = with_keyed_dropout(Frugal()).train()
    one, other = (called(model)({}, torch.ones(20, 4))[0] for _ in range(2))
    assert torch.equal(one, other)
    assert not torch.equal(one[:, :4], one[:, 4:])


class Careless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        outputs: Tensor = self.head(hidden + 0.1 * torch.randn_like(hidden))
        return outputs


class DropsByFunction(Careless):
    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(F.dropout(self.body(x), 0.5, self.training))
        return outputs


def test_dropout_without_a_layer_drops_the_same_in_every_engine() -> None:
    runs = [
        tiny.simulate(model=DropsByFunction(), engine=engine, precision="float64")
        for engine in ("loop", "vectorised", "workers")
    ]
    for run in runs[1:]:
        for name, value in shared(runs[0]).items():
            assert torch.allclose(value, shared(run)[name], rtol=1e-9, atol=0)


@pytest.mark.parametrize("kind", ["Careless", "Skipping"])
def test_random_numbers_of_the_models_own_resume_exactly_one_client_at_a_time(
    kind: str, tmp_path: Path
) -> None:
    choices: dict[str, Any] = {"model": globals()[kind](), "engine": "loop"}
    whole = tiny.simulate(**choices)
    with pytest.raises(KeyboardInterrupt):
        tiny.simulate(**choices, out=tmp_path / "run", watchers=[Stops()])
    torch.rand(3), np.random.rand(), random.random()  # noqa: NPY002 - streams are elsewhere by now
    again = tiny.simulate(**choices, out=tmp_path / "run", resume=True)
    assert tiny.same(shared(whole), shared(again))
    assert [e.value for e in whole.evaluations] == [e.value for e in again.evaluations]
    with pytest.raises(ConfigError, match=r"draws random numbers by itself.*engine='loop'"):
        tiny.simulate(model=globals()[kind](), engine="vectorised")


def test_a_layer_that_draws_random_numbers_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot train '1' \(AlphaDropout\) that draws"):
        tiny.simulate(model=network(nn.AlphaDropout(0.2)), engine="vectorised")


def test_a_dropout_layer_may_stand_at_two_places() -> None:
    drop = nn.Dropout(0.5)
    model = nn.Sequential(nn.Linear(4, 8), drop, nn.ReLU(), drop, nn.Linear(8, 3))
    tiny.simulate(model=model, engine="vectorised", rounds=1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(2, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.cell(x.reshape(len(x), 2, 2))[0][:, -1])
        return outputs


class Alone(Careless):
    """Looks at whether a batch has more than one sample, as people guard BatchNorm."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        outputs: Tensor = self.head(hidden.tanh() if len(x) > 1 else hidden)
        return outputs


class Skipping(Careless):
    """Leaves its layer out now and then, by Python's stream of random numbers."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        skipped = random.random() < np.random.rand()  # noqa: NPY002 - the global ones
        outputs: Tensor = self.head(hidden if skipped else 2 * hidden)
        return outputs


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        if hidden.abs().max() > 1e6:
            hidden = hidden / 2
        outputs: Tensor = self.head(hidden)
        return outputs


class Centred(nn.Module):
    """What it makes of a sample depends on the others of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        outputs: Tensor = self.head(hidden - hidden.mean(0))
        return outputs


class Shared(Careless):
    """What it makes of a sample depends on how many there are."""

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.body(x).tanh() / len(x))
        return outputs


class Paired(Careless):
    """Takes samples two by two, as in training by pairs: three are too many."""

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.body(x).unflatten(0, (-1, 2)).flatten(0, 1))
        return outputs


class Counting(nn.Module):
    """Counts its passes in training in a buffer of its own, in place."""

    passes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.count()
        outputs: Tensor = self.head(self.body(x).relu())
        return outputs

    def count(self) -> None:
        self.passes += 1


class CountingAnew(Counting):
    """The same, with a new buffer each time."""

    def count(self) -> None:
        self.passes = self.passes + 1


class Clamped(Counting):
    """Holds its weights within bounds, in place."""

    def count(self) -> None:
        with torch.no_grad():
            self.body.weight.clamp_(-0.1, 0.1)


def test_weights_that_a_model_changes_are_the_clients_own() -> None:
    data, model = tiny.data(), Clamped()
    sent = state_of(model)
    plans = srpfl.FedAvg().plans(model)
    job = Job(0, 0, "train", range(data.clients), dict(sent), [{}] * data.clients, plans)
    LoopEngine(model, data).train([job])
    assert tiny.same(job.shared, sent)


@pytest.mark.parametrize("kind", [Counting, CountingAnew])
def test_buffers_that_a_model_sets_begin_at_what_was_sent_and_are_averaged(kind: Any) -> None:
    run = tiny.simulate(model=kind(), rounds=4)
    assert float(shared(run)["passes"]) == 4 * 3 * 2  # rounds, epochs, batches of 12 samples


NOT_STACKED = [
    Alone,
    Skipping,
    Branching,
    Careless,
    Centred,
    Shared,
    Paired,
    Counting,
    CountingAnew,
    Clamped,
]


@pytest.mark.parametrize("kind", NOT_STACKED)
def test_what_cannot_be_stacked_is_trained_one_client_after_another_and_said(kind: Any) -> None:
    plain = tiny.simulate(model=kind(), engine="loop")
    with pytest.warns(srpfl.SrpflWarning, match="clients are trained one after another"):
        chosen = tiny.simulate(model=kind(), engine="auto")
    assert tiny.same(shared(plain), shared(chosen))
    with pytest.raises(ConfigError, match=r"vectorised engine cannot train .*'loop'"):
        tiny.simulate(model=kind(), engine="vectorised")


class Sharpened(Careless):
    """Does more with what its head returns in training than in a test."""

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.body(x).tanh())
        return 2 * outputs if self.training else outputs


def test_what_a_model_does_after_its_head_in_training_is_seen() -> None:
    plain, stacked = (
        tiny.simulate(model=Sharpened(), engine=engine, precision="float64")
        for engine in ("loop", "vectorised")
    )
    for name, value in shared(plain).items():
        assert torch.allclose(value, shared(stacked)[name], rtol=1e-9, atol=1e-12)


def test_recurrent_layers_are_stacked() -> None:
    plain, stacked = (
        tiny.simulate(model=Recurrent(), engine=engine, precision="float64")
        for engine in ("loop", "vectorised")
    )
    for name, value in shared(plain).items():
        assert torch.allclose(value, shared(stacked)[name], rtol=1e-9, atol=1e-12)


def test_normalisation_without_parameters_learns_statistics_with_its_part() -> None:
    run = played(network(nn.BatchNorm1d(8, affine=False)))
    assert not torch.equal(shared(run)["1.running_mean"], torch.zeros(8))
    frozen = tiny.simulate(
        model=network(nn.BatchNorm1d(8, affine=False)),
        algorithm=srpfl.FedRep(personal=["3"], body_epochs=0),
    )
    assert torch.equal(shared(frozen)["1.running_mean"], torch.zeros(8))


def test_a_last_batch_of_one_sample_is_normalised_with_the_statistics_so_far() -> None:
    # 13 samples in batches of 4: the last has one.
    run = tiny.simulate(
        model=network(nn.BatchNorm1d(8)),
        data=tiny.data(per_client=13),
        algorithm=srpfl.FedAvg(batch_size=4),
    )
    assert int(shared(run)["1.num_batches_tracked"]) > 0


class Squeezing(Careless):
    """As many people write it: with one sample, the batch is gone too."""

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.body(x)[..., None].tanh().squeeze())
        return outputs


class Keeping(Careless):
    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.body(x).tanh())
        return outputs


@STACKED
def test_a_last_batch_of_one_sample_may_be_squeezed(engine: str) -> None:
    choices: dict[str, Any] = {"algorithm": srpfl.FedAvg(batch_size=4), "precision": "float64"}
    for size in (1, 13):
        plain, squeezed = (
            tiny.simulate(model=kind(), data=tiny.data(per_client=size), engine=where, **choices)
            for kind, where in ((Keeping, "loop"), (Squeezing, engine))
        )
        for name, value in shared(plain).items():
            assert torch.allclose(value, shared(squeezed)[name], rtol=1e-9, atol=1e-12)


def test_a_model_that_gives_a_row_for_each_token_does_so_for_one_sample_too() -> None:
    for samples in (1, 2):
        assert called(nn.Flatten(0, 1))({}, torch.ones(samples, 6, 7))[0].shape == (6 * samples, 7)


def test_attention_starts_from_the_seed() -> None:
    one, other = (
        state_of(initial_model(nn.MultiheadAttention(8, 2), seed=seed)) for seed in (3, 3)
    )
    assert tiny.same(one, other)
    third = state_of(initial_model(nn.MultiheadAttention(8, 2), seed=4))
    assert not torch.equal(one["in_proj_weight"], third["in_proj_weight"])


def test_a_model_that_does_not_fit_the_data_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"does not take samples of shape \(4,\)"):
        tiny.simulate(model=nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)))
    with pytest.raises(ConfigError, match="tells 2 classes apart and the data has 3"):
        tiny.simulate(model=nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    with pytest.raises(ConfigError, match="one row of scores"):
        tiny.simulate(
            model=nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3), nn.Unflatten(1, (3, 1)))
        )
    with pytest.raises(ConfigError, match="Dimension out of range"):
        tiny.simulate(model=nn.Sequential(nn.Flatten(2), nn.Linear(4, 4), nn.Linear(4, 3)))
    with pytest.raises(ConfigError, match="holds complex numbers"):
        tiny.simulate(model=nn.Sequential(nn.Linear(4, 4, dtype=torch.cfloat), nn.Linear(4, 3)))
    with pytest.raises(ConfigError, match="has no values yet"):
        tiny.simulate(model=nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 3)))
