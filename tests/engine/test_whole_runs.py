"""Whole runs on a GPU, with averages, evaluations and checkpoints, come out as on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import srpfl
from srpfl.core.means import weighted_mean

from .cases import CASES, relative

NAMES = ["fedrep-batchnorm", "fedbn", "fedrep-gru", "scaffold", "fedadam", "ditto-batchnorm"]
NAMES += ["fedrep-attention", "fedrep-masked-fixed", "fedrep-regression"]
# Engines count in double precision, but what is sent is kept in single, as the model is: a weight's
# last digit may fall either way there.
LAST_DIGIT = 1e-7


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_whole_run_on_a_gpu(name: str, tmp_path: Path) -> None:
    case = CASES[name]

    def played(device: str, engine: str) -> srpfl.Run:
        return srpfl.simulate(
            data=case.data(),
            model=case.model,
            algorithm=case.algorithm,
            task=case.task,
            participation=srpfl.Doubling(start=2, every=1),
            rounds=3,
            evaluate_every=1,
            device=device,
            engine=engine,
            precision="float64",
            out=tmp_path / device,
        )

    plain, stacked = played("cpu", "loop"), played("cuda", "vectorised")
    assert plain.state is not None
    assert stacked.state is not None
    for one, other in zip(plain.evaluations, stacked.evaluations, strict=True):
        assert other.value == pytest.approx(one.value, rel=LAST_DIGIT)
    for key, value in plain.state.shared.items():
        assert relative(stacked.state.shared[key], value) < LAST_DIGIT
    for slot, tensors in plain.state.server.items():
        for key, value in tensors.items():
            assert relative(stacked.state.server[slot][key], value) < LAST_DIGIT


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_counts_without_an_axis_have_a_mean(device: str) -> None:
    parts = [{"steps": torch.tensor(count, device=device)} for count in (1, 2, 3)]
    assert weighted_mean(parts, [1.0, 1.0, 1.0])["steps"].item() == 2
