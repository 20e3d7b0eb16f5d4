"""What makes the library pleasant: longer runs, watchers that end one, sentences that help."""

from __future__ import annotations

import io
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import srpfl
import tiny
from srpfl.loop import progress


def records(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "rounds.jsonl").read_bytes(), (folder / "evaluations.jsonl").read_bytes()


def test_a_finished_run_can_be_made_longer(tmp_path: Path) -> None:
    """It ends as if it had been that long from the start."""
    tiny.simulate(rounds=2, evaluate_every=2, out=tmp_path / "run")
    tiny.simulate(rounds=5, evaluate_every=2, out=tmp_path / "run", resume=True)
    tiny.simulate(rounds=5, evaluate_every=2, out=tmp_path / "whole")
    assert records(tmp_path / "run") == records(tmp_path / "whole")
    assert srpfl.Run.load(tmp_path / "run").config["rounds"] == 5
    with pytest.raises(srpfl.SrpflError, match=r"differs in rounds.*at least its 5 rounds"):
        tiny.simulate(rounds=3, evaluate_every=2, out=tmp_path / "run", resume=True)
    with pytest.raises(srpfl.SrpflError, match=r"differs in .*algorithm"):
        tiny.simulate(rounds=9, out=tmp_path / "run", resume=True, algorithm=srpfl.FedPer())


def test_a_longer_run_keeps_the_evaluations_that_it_has(tmp_path: Path) -> None:
    tiny.simulate(rounds=3, evaluate_every=3, out=tmp_path / "run")
    run = tiny.simulate(rounds=8, evaluate_every=4, out=tmp_path / "run", resume=True)
    assert [point.round for point in run.accuracy] == [3, 4, 8]
    again = tiny.simulate(rounds=8, evaluate_every=4, out=tmp_path / "run", resume=True)
    assert [point.round for point in again.accuracy] == [3, 4, 8]


class Third(srpfl.Watcher):
    """Sees the models, and has seen enough after three rounds."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def after(self, run: srpfl.Run) -> bool:
        client = run.rounds[-1].participants[0]
        self.seen.append(float(run.module_of(client)(torch.ones(1, 4)).sum()))
        return len(run.rounds) == 3


def test_a_watcher_sees_the_models_and_can_end_the_run(tmp_path: Path) -> None:
    watcher = Third()
    run = tiny.simulate(
        rounds=6, watchers=[watcher], out=tmp_path / "run", checkpoint_every=5, evaluate_every=1
    )
    assert len(run.rounds) == len(set(watcher.seen)) == 3
    tiny.simulate(rounds=6, out=tmp_path / "run", checkpoint_every=5, evaluate_every=1, resume=True)
    tiny.simulate(rounds=6, out=tmp_path / "whole", checkpoint_every=5, evaluate_every=1)
    assert records(tmp_path / "run") == records(tmp_path / "whole")


def test_a_run_that_exists_is_said_in_the_words_of_python(tmp_path: Path) -> None:
    tiny.simulate(rounds=1, out=tmp_path / "run")
    with pytest.raises(srpfl.SrpflError, match="resume=True"):
        tiny.simulate(rounds=1, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"algorithm": "fedrep"}, r"write algorithm=srpfl\.FedRep\(\)"),
        ({"algorithm": "lg-fedavg"}, r"write algorithm=srpfl\.LGFedAvg\(\)"),
        ({"participation": "doubling"}, r"write participation=srpfl\.Doubling\(\)"),
        ({"algorithm": srpfl.FedRep}, r"write FedRep\(\.\.\.\)"),
        ({"stop_at": 0.9, "evaluations": ["local"]}, "add 'personalised'"),
        ({"num_rounds": 3}, "unknown argument of simulate 'num_rounds': did you mean 'rounds'?"),
        ({"play": 3}, "unknown argument of simulate 'play'"),  # a name of our own functions'
    ],
)
def test_a_slip_is_a_sentence(choice: dict[str, Any], sentence: str) -> None:
    with pytest.raises(srpfl.SrpflError, match=sentence):
        tiny.simulate(**choice)


def test_arguments_of_simulate_have_names() -> None:
    play: Any = srpfl.simulate
    for args, named in (((), {"rounds": 3}), ((tiny.data(),), {})):
        with pytest.raises(srpfl.SrpflError, match=r"by name, and needs data=\.\.\., model="):
            play(*args, **named)


def test_an_accuracy_that_was_not_measured_says_so() -> None:
    run = tiny.simulate(rounds=1, evaluations=["local"])
    with pytest.raises(srpfl.SrpflError, match=r"ask for run\.curve\('local'\)"):
        _ = run.accuracy
    assert run.curve("local")


def test_a_target_that_is_never_measured_is_refused() -> None:
    with pytest.raises(srpfl.SrpflError, match="stop_at looks at the personalised accuracy"):
        tiny.simulate(rounds=1, evaluations=["local"], stop_at=0.5)


def trained() -> nn.Module:
    model = tiny.model()
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(3)
    return model


def ones() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3))
    nn.init.constant_(model[1].weight, 0.5)
    return model


def xavier() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))
    nn.init.xavier_uniform_(model[0].weight)
    return model


def moved() -> nn.Module:
    """Of the usual spread, around another mean."""
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))
    nn.init.uniform_(model[0].weight, 0.5, 1.5)
    return model


@pytest.mark.parametrize("make", [ones, xavier, moved])
def test_an_instance_with_weights_of_its_own_is_warned_about(make: Any) -> None:
    with pytest.warns(srpfl.SrpflWarning, match="pretrained=True keeps them"):
        tiny.simulate(model=make(), rounds=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny.simulate(model=make(), rounds=1, pretrained=True)
        tiny.simulate(model=make, rounds=1)


@pytest.mark.parametrize("seed", range(5))
def test_an_instance_as_its_class_makes_it_is_not(seed: int) -> None:
    from srpfl.core.initial import check_start

    torch.manual_seed(seed)
    nets = [
        srpfl.models.LeNet5(classes=10),
        srpfl.models.CharGRU(20),
        srpfl.models.ResNet(classes=10),
    ]
    nets += [nn.Sequential(nn.Embedding(30, 8), nn.TransformerEncoderLayer(8, 2, 16))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for net in nets:
            check_start(net)


def test_a_score_of_ones_own_is_what_the_run_is_judged_by() -> None:
    def wrong(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return outputs.argmax(1) != y

    usual = tiny.simulate()
    run = tiny.simulate(task=srpfl.Scored(name="errors", by=wrong, better="lower"))
    assert (run.metric, run.higher_is_better) == ("errors", False)
    right = [point.value for point in usual.scores]
    assert [point.value for point in run.scores] == pytest.approx([1 - each for each in right])
    assert run.time_to(1 - max(right)) == usual.time_to(max(right))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_where_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted, screen, told in (
        (None, Terminal(), True),
        (False, Terminal(), False),
        (None, io.StringIO(), False),
    ):
        monkeypatch.setattr(sys, "stderr", screen)
        tiny.simulate(rounds=2, progress=wanted)
        assert ("2/2" in screen.getvalue()) == told


def test_progress_ends_with_the_last_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the kind that the method is judged by: Ditto's is local."""
    monkeypatch.setenv("COLUMNS", "100")
    for algorithm in (srpfl.FedRep(), srpfl.Ditto()):
        monkeypatch.setattr(sys, "stderr", screen := Terminal())
        run = tiny.simulate(algorithm=algorithm, rounds=2)
        last = re.sub(r"\x1b\[[\d;?]*\w", "", screen.getvalue()).rstrip().splitlines()[-1]
        assert f"2/2 done {100 * run.accuracy[-1].value:.1f} %, n = 1/6" in last


def test_progress_in_a_log_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    def logged(seconds: float) -> list[str]:
        monkeypatch.setattr(progress, "LOGGED", seconds)
        monkeypatch.setattr(sys, "stderr", log := io.StringIO())
        tiny.simulate(rounds=2, progress=True, evaluate_every=1)
        return log.getvalue().splitlines()

    assert logged(60.0) == []
    first, *_, last = logged(0.0)
    assert ": round 1/2, " in first
    assert re.search(r": round 2/2, \d+\.\d %, n = ", last)


def test_progress_in_a_notebook_is_a_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            lines.append(data["text/plain"])

    class ZMQInteractiveShell: ...

    class Fake:
        display = staticmethod(lambda *_, **__: Handle())
        get_ipython = staticmethod(ZMQInteractiveShell)

    monkeypatch.setitem(sys.modules, "IPython", Fake)
    monkeypatch.setitem(sys.modules, "IPython.display", Fake)
    tiny.simulate(rounds=2)
    assert any("round 2/2" in line for line in lines)
