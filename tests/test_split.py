from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from srpfl.core.split import combine, last_linear, outside, partition, predicate, state_of
from srpfl.errors import ConfigError

names = st.sets(st.text("abc.", min_size=1, max_size=6), max_size=8)


@given(names, names)
def test_combine_undoes_partition_whatever_the_predicate(keys: set[str], chosen: set[str]) -> None:
    state = {name: torch.full((2,), float(place)) for place, name in enumerate(sorted(keys))}
    shared, personal = partition(state, chosen.__contains__)
    assert personal.keys() == keys & chosen
    assert shared.keys() == keys - chosen
    whole = combine(shared, personal)
    assert whole.keys() == keys
    assert all(whole[name] is state[name] for name in keys)


def test_the_same_name_in_both_parts_is_refused() -> None:
    with pytest.raises(ConfigError, match="both parts of the split hold a"):
        combine({"a": torch.zeros(1)}, {"a": torch.zeros(1)})


def test_a_name_means_a_module_and_not_a_prefix_of_another_name() -> None:
    model = nn.ModuleDict({"fc1": nn.Linear(2, 2), "fc10": nn.Linear(2, 2)})
    is_personal = predicate(model, ["fc1"])
    assert [name for name in model.state_dict() if is_personal(name)] == ["fc1.weight", "fc1.bias"]


def test_head_is_a_module_of_that_name_before_it_is_the_last_linear_layer() -> None:
    named = nn.ModuleDict({"head": nn.Linear(2, 2), "tail": nn.Linear(2, 2)})
    assert predicate(named, "head")("head.weight")
    assert not predicate(named, "head")("tail.weight")
    unnamed = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    assert predicate(unnamed, "head")("2.weight")
    assert not predicate(unnamed, "head")("0.weight")


def test_buffers_travel_with_the_shared_part_unless_the_predicate_says_otherwise() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    shared, personal = partition(state_of(model), predicate(model, "head"))
    assert {"1.running_mean", "1.running_var", "1.num_batches_tracked"} <= shared.keys()
    shared, personal = partition(state_of(model), predicate(model, ["1", "2"]))
    assert {"1.running_mean", "1.running_var"} <= personal.keys()


def test_unknown_parts_and_too_few_layers_are_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"no part named 'fc9'.*its parts: fc1, fc2"):
        predicate(nn.ModuleDict({"fc1": nn.Linear(1, 1), "fc2": nn.Linear(1, 1)}), ["fc9"])
    with pytest.raises(ConfigError, match="1 linear layers and the split needs the last 2"):
        last_linear(nn.Linear(1, 1), 2)


def test_outside_is_the_rest_of_the_model() -> None:
    rest = outside(["fc2", "fc3"])
    assert [rest(name) for name in ("fc1.weight", "fc2.weight", "fc3.bias")] == [True, False, False]
