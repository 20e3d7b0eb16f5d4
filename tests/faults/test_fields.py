"""Whatever a choice is made of: a choice that works, or one sentence that says what is wrong."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srpfl
import tiny
from sentence import one_sentence
from srpfl.errors import ConfigError, SrpflError

ODD: list[Any] = [
    *(None, True, 3, -1, 0.5, -0.5, 2**127, "x", "3", b"x", 1j, (), [1], (1, 2), {"a": 1}, {1}),
    *(np.longdouble(1), np.uint64(1 << 63), np.array(2), np.array([1, 2]), np.datetime64("2020")),
    *(torch.tensor(2), torch.tensor([0.5, 1]), torch.float32, decimal.Decimal("NaN"), Path("p")),
    *(datetime.timedelta(1), object(), range(3), len, lambda: 1, dict, srpfl, srpfl.FedAvg()),
]
ROLES = {
    "algorithm": "plans",
    "participation": "choose",
    "clock": "times",
    "task": "check_labels",
}


def choices() -> list[tuple[str, type]]:
    """All public classes that a run is put together from, and which argument they are for."""
    public = [getattr(srpfl, name) for name in srpfl.__all__]
    return [
        (role, kind)
        for kind in public
        if isinstance(kind, type) and is_dataclass(kind)
        for role, method in ROLES.items()
        if hasattr(kind, method)
    ]


@pytest.mark.parametrize(("role", "kind"), choices())
def test_any_value_of_a_field_is_taken_or_refused_in_one_sentence(role: str, kind: Any) -> None:
    needed = {"name": "mine", "by": lambda outputs, y: (outputs.argmax(1) == y).float()}
    named = [field for field in fields(kind) if field.init]
    must = [f.name for f in named if f.default is MISSING and f.default_factory is MISSING]
    usual = {name: needed.get(name, 1) for name in must}
    for place, field in enumerate(named):
        for value in ODD[place % 2 :: 2]:
            try:
                kind(**{**usual, field.name: value})
            except SrpflError as error:
                one_sentence(error)


@pytest.mark.parametrize(
    ("role", "wrong", "sentence"),
    [
        (
            "algorithm",
            lambda: srpfl.FedRep(head_epochs="3"),
            "head_epochs must be a whole number",
        ),
        (
            "algorithm",
            lambda: srpfl.FedRep(rule=srpfl.SGD),
            "rule must be an object such as a Rule",
        ),
        ("algorithm", lambda: srpfl.FedAvg(wire=0.5), "FedAvg's wire must be a text, not 0.5"),
        ("algorithm", lambda: srpfl.FedAdam(betas=(0.9,)), "betas must be a list of numbers"),
        ("algorithm", lambda: srpfl.FedAvg(average=2), "average must be a text or a function"),
        ("participation", lambda: srpfl.Oort(window=[1]), "Oort's window must be a whole number"),
        ("task", lambda: srpfl.Regression(metric=1), "metric must be 'rmse' or 'mse' or 'mae' or"),
        ("task", lambda: srpfl.Scored(name="x", by=len, better="Higher"), "'higher' or 'lower'"),
    ],
)
def test_the_sentence_names_the_field(role: str, wrong: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        tiny.simulate(**{role: wrong()})


@dataclass(frozen=True, kw_only=True)
class Own(srpfl.FedAvg):
    """A method of one's own, whose fields are declared loosely."""

    strength: float = None  # type: ignore[assignment]
    kind: "NotThere" = None  # type: ignore[name-defined] # noqa: F821, UP037
    later: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "later", 3)


@pytest.mark.parametrize(
    "made",
    [
        lambda: srpfl.FedRep(personal={"2"}),
        lambda: srpfl.FedRep(personal=frozenset(["2"])),
        lambda: srpfl.FedAdam(betas=[0.9, 0.99]),
        lambda: srpfl.FedAvg(epochs=np.int64(1), rule=srpfl.SGD(lr=np.float32(0.1))),
    ],
)
def test_what_means_the_same_is_taken(made: Any) -> None:
    assert made()


def test_a_path_is_as_good_as_its_text(tmp_path: Path) -> None:
    (tmp_path / "phones.csv").write_text("cpu_float_score\n1000\n2000\n")
    assert srpfl.DeviceProfiles(devices=tmp_path / "phones.csv").fixed


def test_a_class_of_ones_own_may_be_declared_loosely() -> None:
    assert tiny.simulate(algorithm=Own(epochs=1), rounds=1).rounds


@dataclass(frozen=True)
class OwnData(type(tiny.data())):  # type: ignore[misc]
    """Data of one's own: what they say of their fields is not for us to check."""

    place: Path = Path()


def test_data_of_ones_own_may_hold_anything() -> None:
    data = tiny.data()
    own = OwnData(**{f.name: getattr(data, f.name) for f in fields(data)}, place="here")
    assert tiny.simulate(data=own, rounds=1).rounds
