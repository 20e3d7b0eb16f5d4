"""A frozen base in bfloat16, with adapters and heads in single precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import srpfl
from srpfl.core.split import Params, state_of
from srpfl.data.base import Pooled, Samples
from srpfl.engine import LoopEngine, VectorisedEngine
from srpfl.engine.precision import PRECISIONS
from srpfl.models import Adapters, lora

from .test_lora import Stops, inputs, played, reader, sentences, shared

# A number of bfloat16 has 8 bits. Engines add up in another order, so a sum may come out rounded to
# the next one, and so may what is computed of it.
ROUNDING = 2**-8


def relative(one: Params, other: Params) -> float:
    return max(float((one[n] - v).norm() / v.norm().clamp(min=1e-6)) for n, v in other.items())


def low(**changes: Any) -> srpfl.Run:
    return played(lora(reader().bfloat16(), rank=2), precision="bfloat16", **changes)


@pytest.mark.parametrize("engine", [LoopEngine, VectorisedEngine])
def test_the_base_is_in_memory_once_in_half_the_bytes(engine: type[Any]) -> None:
    for given in (reader(), reader().bfloat16()):
        model = engine(lora(given, rank=2), sentences(), precision="bfloat16").model
        kinds = {name: value.dtype for name, value in model.named_parameters()}
        for name, value in model.named_parameters():
            trained = Adapters()(name) or name.startswith("classifier")
            assert kinds[name] == (torch.float32 if trained else torch.bfloat16)
            if not trained and given.get_parameter(name).dtype == torch.bfloat16:
                assert value.data_ptr() == given.get_parameter(name).data_ptr()
        assert given.embed.weight.dtype in (torch.float32, torch.bfloat16)


def test_a_fresh_adapter_changes_no_output_by_a_bit() -> None:
    plain, precision = reader().bfloat16().eval(), PRECISIONS["bfloat16"]
    adapted = lora(plain, rank=3)
    assert torch.equal(adapted(**inputs()), plain(**inputs()))
    found = [precision.called(m)(state_of(m), inputs())[0] for m in (plain, adapted.eval())]
    assert torch.equal(*found)


@pytest.mark.parametrize("engine", ["vectorised", pytest.param("workers", marks=pytest.mark.slow)])
def test_engines_agree_and_what_is_trained_is_single(engine: str) -> None:
    one, other = low(rounds=1), low(engine=engine, rounds=1)
    exact = played(lora(reader(), rank=2), rounds=1)
    assert relative(shared(other), shared(one)) < ROUNDING
    assert {value.dtype for value in shared(other).values()} == {torch.float32}
    assert 0 < relative(shared(one), shared(exact)) < 4 * ROUNDING  # of a few steps


@pytest.mark.parametrize("engine", ["loop", pytest.param("vectorised", marks=pytest.mark.slow)])
def test_a_resumed_run_is_exact_and_its_folder_is_single_without_the_base(
    engine: str, tmp_path: Path
) -> None:
    whole = low(engine=engine)
    with pytest.raises(KeyboardInterrupt):
        low(engine=engine, out=tmp_path, watchers=[Stops()])
    again = low(engine=engine, out=tmp_path, resume=True)
    for name, value in shared(whole).items():
        assert torch.equal(shared(again)[name], value)
    saved = [load_file(file) for file in tmp_path.rglob("*.safetensors")]
    kinds = {n: v.dtype for file in saved for n, v in file.items() if v.is_floating_point()}
    assert set(kinds.values()) == {torch.float32}
    assert all("lora_" in name or "classifier" in name for name in kinds)


def test_numbers_go_in_and_come_out_of_a_half_precision_model() -> None:
    rng = np.random.default_rng(0)
    pool = Samples(rng.normal(size=(24, 4)).astype(np.float32), rng.integers(3, size=24))
    parts = np.split(np.arange(24), 4)
    data = Pooled("numbers", pool, pool, parts, parts, 3)
    net = srpfl.models.MLP(4, (8, 5), classes=3).bfloat16()
    run = played(lora(net, rank=2), "head", data=data, precision="bfloat16", rounds=1)
    assert run.module_of(1)(data.test(1).x).dtype == torch.bfloat16
    upper = lora(net, rank=2, targets="fc2")
    kept, above = srpfl.data.precomputed(data, upper)
    again = played(above, "head", data=kept, precision="bfloat16", rounds=1)
    plain = played(upper, "head", data=data, precision="bfloat16", rounds=1)
    found = {name.removeprefix("inner."): value for name, value in shared(again).items()}
    assert relative(found, shared(plain)) < ROUNDING
