"""Models that leave a run: the same from memory and from disk, in plain PyTorch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srpfl
import tiny
from srpfl.data import Transform

METHODS = {
    "fedavg": srpfl.FedAvg(),
    "fedrep": srpfl.FedRep(head_epochs=2),
    "ditto": srpfl.Ditto(),
    "apfl": srpfl.APFL(),
    "ifca": srpfl.IFCA(clusters=2),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_model_is_the_same_from_memory_and_disk_and_as_good_as_was_recorded(
    name: str, tmp_path: Path
) -> None:
    data = replace(tiny.data(), transform=Transform(mean=(0.5,), std=(2.0,)))
    choices: dict[str, Any] = {"data": data, "algorithm": METHODS[name], "evaluations": ["local"]}
    run = tiny.simulate(**choices, participation=srpfl.Everyone(), rounds=2, out=tmp_path / "run")
    loaded = srpfl.Run.load(tmp_path / "run")
    for client in (0, 3):
        x, y = data.test(client)
        module = run.module_of(client)
        assert isinstance(module, torch.nn.Module)
        assert not any(part.training for part in module.modules())
        said = module(x)
        assert torch.equal(said, loaded.module_of(client, model=tiny.model())(x))
        right = float((said.argmax(1).numpy() == y).mean())
        assert right == pytest.approx(run.curve("local")[-1].clients[client])
    if name not in ("fedavg", "ifca"):  # two clients may be of one cluster
        assert not torch.equal(run.module_of(0)(x), run.module_of(3)(x))


def test_who_never_took_part_is_named(tmp_path: Path) -> None:
    run = tiny.simulate(participation=srpfl.FirstN(n=1), rounds=1, out=tmp_path / "run")
    other = next(client for client in range(6) if not run.parts.took_part(client))  # type: ignore[union-attr]
    loaded = srpfl.Run.load(tmp_path / "run")
    for ask in (run.model_of, run.module_of, loaded.model_of):
        with pytest.warns(srpfl.SrpflWarning, match=f"client {other} never took part") as said:
            ask(other)
        assert said[0].filename == __file__  # the line that asked
    with pytest.warns(srpfl.SrpflWarning, match="never took part"):
        again = loaded.module_of(other, model=tiny.model())
    with pytest.warns(srpfl.SrpflWarning, match="never took part"):
        first = run.module_of(other)
    x = tiny.data().test(0).x
    assert torch.equal(again(x), first(x))  # the same untrained head


def test_the_weights_of_a_folder_need_no_network(tmp_path: Path) -> None:
    run = tiny.simulate(participation=srpfl.Everyone(), rounds=1, out=tmp_path / "run")
    assert tiny.same(srpfl.Run.load(tmp_path / "run").model_of(2), run.model_of(2))


def test_what_is_missing_is_a_sentence(tmp_path: Path) -> None:
    tiny.simulate(rounds=1, participation=srpfl.Everyone(), out=tmp_path / "run")
    loaded = srpfl.Run.load(tmp_path / "run")
    with pytest.raises(srpfl.SrpflError, match=r"give the network, module_of\(1, model="):
        loaded.module_of(1)
    with pytest.raises(srpfl.SrpflError, match="not the network of the run"):
        loaded.module_of(1, model=srpfl.models.MLP(4, (9, 5), classes=3))
    with pytest.raises(srpfl.SrpflError, match="numbered 0 to 5"):
        loaded.module_of(6)
    for place in sorted((tmp_path / "run" / "checkpoints").rglob("*"), reverse=True):
        place.rmdir() if place.is_dir() else place.unlink()
    with pytest.raises(srpfl.SrpflError, match="holds no weights"):
        loaded.model_of(1)


@pytest.mark.filterwarnings("error")
def test_a_model_takes_arrays_that_are_read_only() -> None:
    """As the values of a pandas table are."""
    run = tiny.simulate(participation=srpfl.Everyone(), rounds=1)
    x = tiny.data().test(0).x.copy()
    said = run.module_of(0)(x)
    x.flags.writeable = False
    assert torch.equal(run.module_of(0)(x), said)


def test_a_model_can_be_exported() -> None:
    run = tiny.simulate(participation=srpfl.Everyone(), rounds=1)
    module, x = run.module_of(0), torch.from_numpy(tiny.data().test(0).x)
    exported = torch.export.export(module, (x,)).module()
    torch.testing.assert_close(exported(x), module(x))


def test_a_run_is_one_line_and_a_picture_in_a_notebook() -> None:
    run = tiny.simulate(rounds=2)
    assert "\n" not in repr(run)
    assert len(repr(run)) < 200
    assert (
        "fedrep with Doubling on tiny, 6 clients, seed 0: 2 rounds, personalised accuracy"
        in repr(run)
    )
    page = run._repr_html_()
    assert "data:image/png;base64," in page
    assert "<Run" not in page


def test_a_run_is_drawn_into_a_figure_of_yours() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    panel = figure.subplots()
    run = tiny.simulate(rounds=2)
    assert run.plot(ax=panel) is panel  # a notebook would show a figure once more
    [line] = panel.get_lines()
    np.testing.assert_array_equal(line.get_ydata(), [100 * point.value for point in run.accuracy])
    with pytest.raises(srpfl.SrpflError, match="draws the curve"):
        run.plot(ax=panel, kind="rounds")


class Own(srpfl.Ditto):
    """An algorithm that srpfl does not know by name."""


def test_an_algorithm_of_ones_own_is_asked_for_where_it_is_needed(tmp_path: Path) -> None:
    run = tiny.simulate(
        algorithm=Own(), participation=srpfl.Everyone(), rounds=1, out=tmp_path / "run"
    )
    loaded = srpfl.Run.load(tmp_path / "run")
    with pytest.raises(
        srpfl.SrpflError, match=r"Own is an algorithm of your own.*algorithm=\.\.\."
    ):
        loaded.module_of(2, model=tiny.model())
    x = tiny.data().test(2).x
    again = loaded.module_of(2, model=tiny.model(), algorithm=Own())
    assert torch.equal(again(x), run.module_of(2)(x))
