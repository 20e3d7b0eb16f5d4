"""The options of a run as one flat value.

The command line, a TOML file and a run's config.json are three spellings of a :class:`Config`.
``None`` means "what the data set and the method usually have".
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_type_hints

from srpfl.errors import ConfigError, check_finite, number, shown, unknown
from srpfl.options.methods import METHODS
from srpfl.options.recipes import RECIPES, Recipe
from srpfl.options.settings import CHOICES, Settings, merged, settings

FILES = ("parquet", "numpy")  # data:PATH, where other names with a colon are a user's own code
OWN = "or your own as module:name"
SET = (
    "a setting of a choice, such as algorithm.mu=0.1, participation.k=5, task.metric=mae, "
    "model.width=32, data.length=32 or clock.shape=2; without a choice the algorithm's; can be "
    "repeated"
)


# Run folders have had these words since before `auto` was the name of a policy. They keep them, so
# that every folder means the same to every version.
METHODS_OWN, AUTO, FORMER_AUTO = "auto", "auto", "adaptive"

# The panels that the command's help shows options in.
METHOD = "Method"
DATA = "Data"
MODEL = "Model and task"
WAITING = "Participation: whom a round waits for"
CLOCK = "Clock: how long clients take"
TRAINING = "Local training"
EVALUATION = "Evaluation"
MACHINE = "Machine"


def option(default: Any, help: str, panel: str = "More") -> Any:
    return field(default=default, metadata={"help": help, "panel": panel})


@dataclass(frozen=True, kw_only=True)
class Config:
    """Every option of ``srpfl run``."""

    method: str = option("srpfl", f"one of {', '.join(METHODS)}", METHOD)
    name: str | None = option(
        None, "what the run is called (the method, or the algorithm's class)", METHOD
    )
    data: str = option("digits", f"{', '.join(RECIPES)}, parquet:PATH, numpy:PATH, {OWN}", DATA)
    data_dir: str | None = option(
        None, "folder with the data set's files (or set SRPFL_DATA)", DATA
    )
    clients: int | None = option(
        None, "number of clients, M (digits: 50, school: 139, har: 21, else 100)", DATA
    )
    partition: str | None = option(
        None,
        "how data is shared out: shards, iid, dirichlet, lognormal, natural (by writer, role, "
        "person or school), slow-classes",
        DATA,
    )
    shards: int | None = option(
        None, "classes per client (digits, femnist: 3; cifar100: 20; else 5)", DATA
    )
    per_client: int | None = option(None, "the most training points that a client keeps", DATA)
    alpha: float = option(0.5, "concentration of the Dirichlet partition", DATA)
    sigma: float = option(1.0, "spread of the log-normal partition's sizes", DATA)
    augment: bool = option(True, "random crops and flips, where the data set has them", DATA)
    model: str = option("auto", f"auto, mlp, lenet5, a class of srpfl.models, {OWN}", MODEL)
    task: str | None = option(
        None,
        "classification, regression, multi-label or next-token (the data set's own), " + OWN,
        MODEL,
    )
    rounds: int | None = option(
        None, "rounds to play (digits: 30; shakespeare, school, har: 60; else 150)", METHOD
    )
    seed: int = option(0, "seed of everything random", METHOD)
    algorithm: str | None = option(
        None, f"in place of the method's: a class of srpfl.algorithms such as FedRep, {OWN}", METHOD
    )
    set: Settings | None = field(default=None, metadata={"help": SET, "panel": METHOD})

    participation: str | None = option(
        None,
        "everyone, doubling, auto, first, deadline, flanp-rule, over-selection, typical-deadline, "
        "oort, power-of-choice, fair, fedcs, tifl, divfl, fedbuff, fedasync, semi-async, compass "
        "(the method's own), " + OWN,
        WAITING,
    )
    start: int | None = option(
        None, "clients that the first stage waits for (a tenth of N)", WAITING
    )
    every: int | None = option(None, "rounds per stage (10, or a sixth of a shorter run)", WAITING)
    schedule: str | None = option(
        None, "explicit stages as CLIENTSxROUNDS, such as 5x10,20x10", WAITING
    )
    sample: float = option(
        1.0, "clients asked per round: a fraction up to 1, or a number above 1", WAITING
    )
    resample: str = option("round", "draw a new sample every round or every stage", WAITING)
    first: int | None = option(None, "answers to wait for, with participation=first", WAITING)
    deadline: float = option(1.0, "time to wait, with participation=deadline", WAITING)
    energy: int | None = option(
        None, "local updates that each client has the energy or data for", WAITING
    )
    convexity: float = option(0.1, "strong-convexity constant of FLANP's rule", WAITING)
    noise: float = option(1.0, "constant of the statistical accuracy in FLANP's rule", WAITING)

    clock: str = option(
        "fixed",
        "how long clients take: fixed, dynamic, iid, pareto, two-groups, equal, devices, phones, "
        "dropouts, " + OWN,
        CLOCK,
    )
    rate: float = option(1.0, "rate of the exponential clocks", CLOCK)
    communication: float = option(0.0, "cost of communication per round, C", CLOCK)
    devices: str | None = option(None, "CSV of device speeds, with clock=devices", CLOCK)
    networks: str | None = option(None, "CSV of network speeds, with clock=devices", CLOCK)
    seconds_per_sample: float = option(
        0.01, "of a device with score 1000, with clock=devices", CLOCK
    )

    optimizer: str = option("sgd", "sgd or adam", TRAINING)
    lr: float | None = option(None, "learning rate (0.01; digits: 0.014; not of hf-maml)", TRAINING)
    lr_decay: float = option(1.0, "factor of the learning rate after each round", TRAINING)
    lr_cosine: int | None = option(
        None, "rounds over which the learning rate falls to zero as a cosine", TRAINING
    )
    lr_warmup: int = option(0, "rounds over which the learning rate rises at first", TRAINING)
    momentum: float | None = option(None, "of SGD (0.5 for fedrep and srpfl, else 0)", TRAINING)
    weight_decay: float = option(1e-4, "on weights, not on biases", TRAINING)
    clip: float | None = option(
        None, "the largest norm of a step's gradient; longer ones are cut", TRAINING
    )
    batch_size: int = option(10, "samples per step", TRAINING)
    epochs: int | None = option(
        None, "local epochs of methods with one phase (the data set's: 1 or 5)", TRAINING
    )
    steps: int | None = option(None, "local steps instead of epochs", TRAINING)
    head_epochs: int | None = option(
        None, "epochs on the head (fedrep, srpfl; the data set's: 10, or 1)", TRAINING
    )
    body_epochs: int | None = option(
        None, "epochs on the representation (fedrep, srpfl; the data set's: 1 or 5)", TRAINING
    )
    head_steps: int | None = option(None, "steps on the head instead of epochs", TRAINING)
    body_steps: int | None = option(None, "steps on the representation instead of epochs", TRAINING)
    maml_alpha: float = option(0.01, "hf-maml's step of adaptation", TRAINING)
    maml_beta: float = option(0.1, "hf-maml's step of learning", TRAINING)
    maml_delta: float = option(0.001, "hf-maml's step of differences", TRAINING)
    personal: str | None = option(None, "names of the personal part, such as fc3 or fc2,fc3", MODEL)
    weighting: str = option("uniform", "of the server's average: uniform or samples", TRAINING)

    evaluate_every: int | None = option(
        None, "rounds between evaluations (about thirty in a run; 0: never)", EVALUATION
    )
    evaluate_at: str | None = option(None, "rounds to evaluate after, such as 10,20,50", EVALUATION)
    evaluations: str | None = option(
        None,
        "personalised, local or global, with commas (the method's own; the glossary defines them)",
        EVALUATION,
    )
    evaluate_share: float = option(
        1.0,
        "clients to test: a fraction up to 1, or a number above 1; the same ones every time",
        EVALUATION,
    )
    tuning_epochs: int = option(10, "epochs of evaluation's fine-tuning", EVALUATION)
    stop_at: float | None = option(
        None,
        "stop at this value of the metric (an accuracy is a fraction, such as 0.8)",
        EVALUATION,
    )
    engine: str = option("auto", "auto, loop, workers, vectorised or ray", MACHINE)
    device: str = option("auto", "auto, cpu or cuda", MACHINE)
    precision: str = option("float32", "float32, tf32, bfloat16 or float64", MACHINE)
    checkpoint_every: int = option(1, "rounds between checkpoints", MACHINE)

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            check_finite(each.name, getattr(self, each.name))
        # Written down, because runs from before there were natural partitions have it in words.
        if self.partition is None:
            natural = self.recipe is not None and self.recipe.natural
            object.__setattr__(self, "partition", "natural" if natural else "shards")

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str = "the options") -> Config:
        """From names and values, such as a TOML file's; names may be written with dashes."""
        return cls(**_typed_all(values, source))

    @classmethod
    def from_file(cls, path: Path, given: Mapping[str, Any], *, trust: bool = False) -> Config:
        """From a TOML file or a run's config.json, with some values replaced."""
        if path.suffix == ".json":
            return cls.from_run(_read_json(path), str(path), given, trust=trust)
        return cls._with(_read_toml(path), str(path), given)

    @classmethod
    def from_run(
        cls, config: Any, source: str, given: Mapping[str, Any], *, trust: bool = False
    ) -> Config:
        """From the config of a run, with some values replaced.

        A run folder may come from anybody, so code that it names is only taken if the user names it
        too, or says that the folder can be trusted.
        """
        if not isinstance(config, dict) or "headline" not in config:
            raise ConfigError(f"{source} is not the config of a run")
        if not isinstance(config.get("options"), dict):
            raise ConfigError(
                f"{source} is of a run that was started from Python, and choices made there have "
                "no spelling as options: play it from Python again"
            )
        chosen = cls._with(from_folder(config["options"]), source, given)
        mine = {_module(value) for value in given.values() if isinstance(value, str)}
        for choice, name in chosen.own.items():
            if not trust and _module(name) not in mine:
                raise ConfigError(
                    f"{source} names code that is not srpfl's, {name} as its {choice}: it is only "
                    f"run if you say --trust, or name it yourself by --{choice} {name}"
                )
        return chosen

    @classmethod
    def _with(cls, values: Mapping[str, Any], source: str, given: Mapping[str, Any]) -> Config:
        found, asked = _typed_all(values, source), _typed_all(given, "the options")
        # Settings are of what the file chose: they go with it.
        kept = {
            choice: inner
            for choice, inner in (found.get("set") or {}).items()
            if choice not in asked or asked[choice] == found.get(choice)
        }
        return cls(**{**found, **asked, "set": merged(kept, asked.get("set"))})

    def for_folder(self) -> dict[str, Any]:
        """The options as a run folder keeps them; :meth:`from_run` reads them.

        >>> Config(participation="auto").for_folder()["participation"]
        'adaptive'
        """
        policy = {None: METHODS_OWN, AUTO: FORMER_AUTO}.get(self.participation, self.participation)
        return {**dataclasses.asdict(self), "participation": policy}

    @property
    def recipe(self) -> Recipe | None:
        return RECIPES.get(self.data)

    @property
    def title(self) -> str:
        """What the run is called."""
        if self.name:
            return self.name
        return self.algorithm.rpartition(":")[2].lower() if self.algorithm else self.method

    @property
    def own(self) -> dict[str, str]:
        """The choices that are a user's own code."""
        chosen = {choice: getattr(self, choice) for choice in CHOICES}
        return {choice: name for choice, name in chosen.items() if name and _module(name)}

    def settings(self, choice: str) -> dict[str, Any]:
        """What was set of a choice."""
        return (self.set or {}).get(choice, {})

    def gave(self, name: str) -> bool:
        """Whether an option is another than the usual one."""
        default = next(each.default for each in dataclasses.fields(self) if each.name == name)
        return bool(getattr(self, name) != default)

    def number(self, name: str, fallback: int) -> int:
        """An option, or the recipe's number, or the fallback for data without a recipe."""
        value = getattr(self, name)
        if value is None and self.recipe is not None:
            value = getattr(self.recipe, name)
        return fallback if value is None else int(value)


def from_folder(options: Mapping[str, Any]) -> dict[str, Any]:
    """A run folder's options in today's words: the other way round than ``for_folder``."""
    words = {METHODS_OWN: None, FORMER_AUTO: AUTO}
    found = {name: value for name, value in options.items() if name != "participation"}
    policy = options.get("participation")
    policy = words.get(policy, policy) if isinstance(policy, str) else policy
    return found if policy is None else {**found, "participation": policy}


def is_own(name: str) -> bool:
    """Whether a name is a user's own code, module:name."""
    return bool(_module(name))


def _module(name: str) -> str | None:
    module, colon, _ = name.partition(":")
    return module if colon and module not in FILES else None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from error


def _typed_all(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    known = {field.name for field in dataclasses.fields(Config)}
    types = get_type_hints(Config)
    given = {}
    for name, value in values.items():
        plain = name.replace("-", "_")
        if plain not in known:
            raise unknown(f"option in {source}", name, known)
        if plain == "set":
            given[plain] = settings(value, source)
        else:
            given[plain] = _typed(plain, value, types[plain], source)
    return given


def _typed(name: str, value: Any, hint: Any, source: str) -> Any:
    """The value, if it is of the option's type; whole numbers also stand for floats."""
    wanted = get_args(hint) or (hint,)
    if str in wanted and isinstance(value, list):  # TOML has lists where a command has commas
        value = ",".join("x".join(map(str, v)) if isinstance(v, list) else str(v) for v in value)
    if float in wanted and isinstance(value, int) and not isinstance(value, bool):
        value = number(f"option '{name}' in {source}", value)
    if not any(type(value) is kind for kind in wanted):
        kinds = " or ".join(kind.__name__ for kind in wanted if kind is not type(None))
        raise ConfigError(
            f"option '{name}' in {source} must be of type {kinds}, not {shown(value)}"
        )
    return value
