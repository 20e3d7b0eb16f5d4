"""A user's own model, data, algorithm, policy, clock and task on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import srpfl
from srpfl.options.config import Config
from srpfl.options.experiment import experiment

Run = Callable[..., Any]


def held(folder: str) -> Any:
    return json.loads((Path(folder) / "config.json").read_text())


def test_everything_can_be_the_users_own(run: Run) -> None:
    result = run(
        *("--data", "mine:numbers", "--set", "data.spread=0.2", "--model", "mine:line"),
        *("--algorithm", "mine:Warm", "--set", "warm=1", "--task", "mine:Off"),
        *("--set", "task.power=1", "--clock", "mine:Slow", "--set", "clock.factor=3"),
        *("--participation", "mine:Few", "--set", "participation.k=2", "--out", "run"),
    )
    assert (result["method"], result["metric"]) == ("warm", "error")
    assert "accuracy" not in result
    assert result["value"] == result["evaluations"][0]["value"] > 0
    assert result["participants"] == [[0, 1], [0, 1]]
    assert result["time"] == 2 * 3 * 2.0  # two rounds, waiting for client 1
    config = held("run")
    assert config["algorithm"]["warm"] == 1
    assert config["task"]["power"] == 1
    assert config["data"] == {"name": "numbers", "clients": 6, "classes": 0}


def test_a_file_says_the_same(run: Run, here: Path) -> None:
    line = ("--model", "mine:net", "--set", "model.width=5", "--algorithm", "mine:Warm")
    run(*line, "--set", "warm=1", "--name", "own", "--out", "line")
    (here / "own.toml").write_text(
        'model = "mine:net"\nalgorithm = "mine:Warm"\nname = "own"\n'
        "[set.model]\nwidth = 5\n[set.algorithm]\nwarm = 1\n"
    )
    run("own.toml", "--out", "file")
    for name in ("config.json", "rounds.jsonl", "evaluations.jsonl"):
        assert (here / "line" / name).read_bytes() == (here / "file" / name).read_bytes()


@pytest.mark.slow
def test_the_current_folder_can_be_imported_from_where_python_would_not(here: Path) -> None:
    command = [sys.executable, "-P", "-c", "from srpfl.cli import main; main()", "run"]
    command += ["--model", "mine:net", "--clients", "4", "--rounds", "1", "--json"]
    done = subprocess.run(
        command,
        cwd=here,
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == 1


def test_our_own_classes_go_by_their_names(run: Run) -> None:
    result = run(
        *("--algorithm", "FedPer", "--set", "epochs=2", "--participation", "Doubling"),
        *("--set", "participation.start=3", "--clock", "Pareto", "--set", "clock.shape=3"),
        *("--model", "MLP", "--set", "model.hidden=[8]", "--out", "run"),
    )
    assert result["method"] == "fedper"
    assert [len(who) for who in result["participants"]] == [3, 6]
    config = held("run")
    assert config["algorithm"]["kind"] == "FedPer"
    assert config["algorithm"]["epochs"] == 2
    assert config["clock"]["shape"] == 3
    assert "fc2" in config["model"]
    assert "fc3" not in config["model"]


def test_settings_reach_what_a_method_and_a_recipe_bring_along(run: Run) -> None:
    run("--set", "head_epochs=1", "--set", "model.hidden=[8]", "--method", "srpfl", "--out", "run")
    assert held("run")["algorithm"]["head_epochs"] == 1
    assert "out_features=8" in held("run")["model"]


def test_a_model_is_told_classes_and_shape_if_it_asks(here: Path) -> None:
    for name, parts in (("net", ["0.weight", "2.bias"]), ("shaped", ["1.weight", "2.bias"])):
        model = experiment(Config(model=f"mine:{name}"))["model"]()
        assert set(parts) <= model.state_dict().keys()
        assert model.state_dict()[parts[1]].shape == (10,)
    more = Config(model="mine:net", set={"model": {"classes": 12}})
    assert experiment(more)["model"]()[2].bias.shape == (12,)


def test_a_model_that_is_there_already_is_taken(here: Path, run: Run) -> None:
    (here / "ready.py").write_text("from mine import net\nmodel = net(10)\n")
    assert run("--model", "ready:model")["rounds"] == 2
    assert "takes no settings" in run("--model", "ready:model", "--set", "model.x=1", fails=True)


def test_what_an_algorithm_says_itself_comes_before_the_usual_and_after_the_options(
    here: Path,
) -> None:
    def built(**options: Any) -> Any:
        return experiment(Config(data="digits", **options))["algorithm"]

    own = built(algorithm="mine:Warm")
    assert (own.batch_size, own.rule) == (7, srpfl.SGD(lr=0.014))  # its own, and the data set's
    assert built(algorithm="mine:Warm", batch_size=5).batch_size == 5
    assert built(algorithm="mine:OwnRule").rule == srpfl.SGD(lr=0.5)
    assert built(algorithm="mine:OwnRule", lr=0.1).rule == srpfl.SGD(lr=0.1)
    clipped = built(algorithm="mine:OwnRule", clip=2.0).rule
    assert clipped == srpfl.Clipped(rule=srpfl.SGD(lr=0.5), norm=2.0)
    assert built(algorithm="mine:Warm", epochs=3, set={"algorithm": {"epochs": 4}}).epochs == 4


def test_gradients_are_clipped_by_an_option(here: Path) -> None:
    rule = experiment(Config(method="fedavg", clip=0.5))["algorithm"].rule
    assert rule == srpfl.Clipped(rule=srpfl.SGD(lr=0.014), norm=0.5)
    for method in ("hf-maml", "scaffold"):
        with pytest.raises(srpfl.SrpflError, match="cannot be clipped: leave --clip out"):
            experiment(Config(method=method, clip=0.5))


def test_the_method_still_says_who_takes_part(run: Run) -> None:
    everyone = run("--algorithm", "mine:Warm", "--method", "fedrep")
    doubling = run("--algorithm", "mine:Warm", "--start", "2", "--name", "mine")
    assert [len(who) for who in everyone["participants"]] == [6, 6]
    assert [len(who) for who in doubling["participants"]] == [2, 4]
    assert (everyone["method"], doubling["method"]) == ("warm", "mine")
    assert doubling["out"] == "runs/mine-digits-seed0"


def test_the_task_is_the_datas_own_unless_one_is_named(run: Run) -> None:
    own = ("--data", "mine:numbers", "--model", "mine:line")
    assert run(*own)["metric"] == "rmse"
    assert run(*own, "--set", "task.metric=mae")["metric"] == "mae"
    assert run(*own, "--task", "Regression", "--set", "task.metric=r2")["metric"] == "r2"
    refused = run(*own, "--task", "classification", fails=True)
    assert "labels must be the numbers of classes" in refused


def test_data_without_a_recipe_get_a_model_that_fits_their_task(run: Run) -> None:
    run("--data", "mine:numbers", "--out", "run")
    assert "in_features=4" in held("run")["model"]
    assert "out_features=1," in held("run")["model"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "mien:net"], "there is no module 'mien': did you mean 'mine'? (looked in"),
        (["--model", "mine.deep:net"], "there is no module 'mine.deep'"),
        (["--model", "mine:nett"], "mine.py has no 'nett' for the model: did you mean 'mine:net'?"),
        (["--model", "mine:THREE"], "mine:THREE is no class or function but an int"),
        (["--model", "./mine.py:net"], "write module:name, such as mine:net for one in mine.py"),
        (["--algorithm", "mine:Warm", "--set", "wram=1"], "'wram': did you mean 'warm'?"),
        (["--algorithm", "mine:Warm", "--set", "warm=x"], "must be a whole number, not 'x'"),
        (["--set", "rule=3"], "'algorithm.rule' of FedRep must be of type Rule, not 3"),
        (["--set", "model.hidden=[1.5]"], "'model.hidden' of MLP must be a list, not [1.5]"),
        (["--model", "mine:line", "--set", "model.x=1"], "mine:line has no settings, and so no"),
        (["--algorithm", "fedrep"], "unknown algorithm 'fedrep': did you mean 'FedRep'?"),
        (["--algorithm", "mine:Few"], "mine:Few makes a Few, which is no algorithm: it has no"),
        (["--clock", "mine:Few"], "which is no clock: it has no 'communication'"),
        (["--data", "mine:net"], "mine:net needs 'classes': give it with --set data.classes=VALUE"),
        (["--data", "mine:line"], "makes a Sequential, which is no federated data set"),
        (["--task", "regresion"], "unknown task 'regresion': did you mean 'regression'?"),
        (["--set", "task.metric=mae"], "classification has no settings, and so no 'metric'"),
        (["--task", "regression", "--set", "task.metric=mea"], "must be 'rmse' or 'mse' or 'mae'"),
        (["--set", "data.length=3"], "the data set digits has no option 'length'"),
        (["--set", "data.clients=3"], "'clients' is no setting of digits but an option: --clients"),
        (["--data", "shakespeare", "--set", "data.lenght=3"], "did you mean 'length'?"),
        (["--data", "shakespeare", "--set", "data.length=x"], "must be a whole number"),
        (["--model", "CharGRU"], "CharGRU needs 'tokens': give it with --set model.tokens=VALUE"),
        (["--model", "lora"], "unknown model 'lora' (known: CharGRU, CharTransformer, ConvNet1d,"),
        (["--clip", "0"], "the norm to clip at must be a positive number, not 0.0"),
        (["--partition", "natral"], "unknown partition 'natral': did you mean 'natural'?"),
    ],
)
def test_a_mistake_is_one_sentence(run: Run, arguments: list[str], sentence: str) -> None:
    assert sentence in run(*arguments, fails=True)


BROKEN = {
    "syntax": ("def net(:\n", "broken cannot be imported: invalid syntax (broken.py, line 1)"),
    "import": ("\nimport nowhere\n", "ModuleNotFoundError: No module named 'nowhere' (broken.py"),
    "exit": ("import sys\nsys.exit(3)\n", "cannot be imported: SystemExit: 3 (broken.py, line 2)"),
    "built": (
        "def net():\n    return [][0]\n",
        "broken:net cannot be built: IndexError: list index out of range (broken.py, line 2)",
    ),
    "wrong": ("def net():\n    return 3\n", "must be a torch.nn.Module or a function that"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_broken_code_is_one_sentence_that_says_where(run: Run, here: Path, how: str) -> None:
    text, sentence = BROKEN[how]
    (here / "broken.py").write_text(text)
    assert sentence in run("--model", "broken:net", fails=True)


def test_code_that_breaks_in_a_round_is_one_sentence_too(run: Run, here: Path) -> None:
    (here / "broken.py").write_text(
        "from mine import Few\n\nclass Late(Few):\n    def learn(self, memory, outcome):\n"
        "        return memory['nothing']\n"
    )
    said = run("--participation", "broken:Late", fails=True)
    assert said.startswith("KeyError: 'nothing' (broken.py, line 5)")
