"""The options of a run as one flat value, and the way from there to the four choices.

The command line and a TOML file are two spellings of a :class:`Config`. ``None`` means "what the
data set and the method usually have".
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
from torch import nn

from srpfl import data as federated_data
from srpfl.algorithms import HFMAML, Algorithm, FedRep
from srpfl.clock import (
    Clock,
    DeviceProfiles,
    DynamicExponential,
    Equal,
    FixedExponential,
    IIDExponential,
    Pareto,
    TwoGroups,
)
from srpfl.clock.base import Work
from srpfl.data.base import Federated
from srpfl.errors import ConfigError, unknown
from srpfl.local import SGD, Adam, HessianFreeMAML, Rule
from srpfl.methods import METHODS, method
from srpfl.models import MLP, LeNet5
from srpfl.participation import Auto, Deadline, Doubling, Everyone, FirstN, FlanpRule, Participation
from srpfl.recipes import RECIPES, Recipe


def option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class Config:
    """Every option of ``srpfl run``."""

    method: str = option("srpfl", f"one of {', '.join(METHODS)}")
    data: str = option("digits", f"{', '.join(RECIPES)}, parquet:PATH or numpy:PATH")
    data_dir: str | None = option(None, "folder with the data set's files (or set SRPFL_DATA)")
    clients: int | None = option(None, "number of clients, M")
    partition: str = option(
        "shards", "how data is dealt out: shards, iid, dirichlet, lognormal, writer, slow-classes"
    )
    shards: int | None = option(None, "classes per client")
    per_client: int | None = option(None, "the most training points that a client keeps")
    alpha: float = option(0.5, "concentration of the Dirichlet partition")
    sigma: float = option(1.0, "spread of the log-normal partition's sizes")
    augment: bool = option(True, "random crops and flips, where the data set has them")
    model: str = option("auto", "auto, mlp or lenet5")
    rounds: int | None = option(None, "rounds to play")
    seed: int = option(0, "seed of everything random")

    participation: str = option(
        "auto",
        "auto (the method's own), everyone, doubling, adaptive, first, deadline or flanp-rule",
    )
    start: int | None = option(None, "clients that the first stage waits for (a tenth of N)")
    every: int | None = option(None, "rounds per stage (10, or a sixth of a shorter run)")
    schedule: str | None = option(None, "explicit stages as CLIENTSxROUNDS, such as 5x10,20x10")
    sample: float = option(1.0, "clients asked per round: a fraction up to 1, or a number above 1")
    resample: str = option("round", "draw a new sample every round or every stage")
    first: int | None = option(None, "answers to wait for, with participation=first")
    deadline: float = option(1.0, "time to wait, with participation=deadline")
    convexity: float = option(0.1, "strong-convexity constant of FLANP's rule")
    noise: float = option(1.0, "constant of the statistical accuracy in FLANP's rule")

    clock: str = option(
        "fixed", "how long clients take: fixed, dynamic, iid, pareto, two-groups, equal or devices"
    )
    rate: float = option(1.0, "rate of the exponential clocks")
    communication: float = option(0.0, "cost of communication per round, C")
    devices: str | None = option(None, "CSV of device speeds, with clock=devices")
    networks: str | None = option(None, "CSV of network speeds, with clock=devices")
    seconds_per_sample: float = option(0.01, "of a device with score 1000, with clock=devices")

    optimizer: str = option("sgd", "sgd or adam")
    lr: float | None = option(None, "learning rate (0.01; digits: 0.014; not of hf-maml)")
    momentum: float | None = option(None, "of SGD (0.5 for fedrep and srpfl, else 0)")
    weight_decay: float = option(1e-4, "on weights, not on biases")
    batch_size: int = option(10, "samples per step")
    epochs: int | None = option(None, "local epochs of methods with one phase")
    steps: int | None = option(None, "local steps instead of epochs")
    head_epochs: int | None = option(None, "epochs on the head (fedrep, srpfl)")
    body_epochs: int | None = option(None, "epochs on the representation (fedrep, srpfl)")
    head_steps: int | None = option(None, "steps on the head instead of epochs")
    body_steps: int | None = option(None, "steps on the representation instead of epochs")
    maml_alpha: float = option(0.01, "hf-maml's step of adaptation")
    maml_beta: float = option(0.1, "hf-maml's step of learning")
    maml_delta: float = option(0.001, "hf-maml's step of differences")
    personal: str | None = option(None, "names of the personal part, such as fc3 or fc2,fc3")
    weighting: str = option("uniform", "of the server's average: uniform or samples")

    evaluate_every: int | None = option(None, "rounds between evaluations (0: never)")
    evaluate_at: str | None = option(None, "rounds to evaluate after, such as 10,20,50")
    evaluations: str | None = option(None, "kinds, such as personalised,local")
    tuning_epochs: int = option(10, "epochs of evaluation's fine-tuning")
    stop_at: float | None = option(None, "stop at this accuracy")
    engine: str = option("auto", "auto, loop, workers or vectorised")
    device: str = option("auto", "auto, cpu or cuda")
    precision: str = option("float32", "float32, tf32, bfloat16 or float64")
    checkpoint_every: int = option(1, "rounds between checkpoints")

    @classmethod
    def of(cls, values: Mapping[str, Any], source: str = "the options") -> Config:
        """From names and values, such as a TOML file's; names may be written with dashes."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        types = get_type_hints(cls)
        given = {}
        for name, value in values.items():
            plain = name.replace("-", "_")
            if plain not in known:
                raise unknown(f"option in {source}", name, known)
            given[plain] = _typed(plain, value, types[plain], source)
        return cls(**given)

    @classmethod
    def from_toml(cls, path: Path, overrides: Mapping[str, Any]) -> Config:
        """From a file, with some values replaced."""
        try:
            values = tomllib.loads(path.read_text())
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from error
        return cls.of({**values, **overrides}, source=str(path))

    @property
    def recipe(self) -> Recipe | None:
        return RECIPES.get(self.data)

    def number(self, name: str, fallback: int) -> int:
        """An option, or the recipe's number, or the fallback for data without a recipe."""
        value = getattr(self, name)
        if value is None and self.recipe is not None:
            value = getattr(self.recipe, name)
        return fallback if value is None else int(value)


def experiment(config: Config) -> dict[str, Any]:
    """All that :func:`srpfl.simulate` needs, except where to keep the run."""
    named = method(config.method)
    if config.seed < 0:
        raise ConfigError(f"the seed must be zero or a positive number, not {config.seed}")
    if config.number("clients", 50) < 1:
        raise ConfigError(f"there must be at least one client, not {config.clients}")
    clock = build_clock(config)
    data = build_data(config, clock)
    kinds = None if config.evaluations is None else _names(config.evaluations)
    return {
        "name": config.method,
        "data": data,
        "model": build_model(config, data),
        "algorithm": build_algorithm(config, named.algorithm),
        "participation": build_participation(config, named.participation),
        "clock": clock,
        "rounds": config.number("rounds", 60),
        "seed": config.seed,
        "evaluate_every": config.evaluate_every,
        "evaluate_at": _rounds(config.evaluate_at),
        "evaluations": kinds,
        "stop_at": config.stop_at,
        "engine": config.engine,
        "device": config.device,
        "precision": config.precision,
        "checkpoint_every": config.checkpoint_every,
        "options": dataclasses.asdict(config),
    }


def build_data(config: Config, clock: Clock) -> Federated:
    recipe, per_client = config.recipe, config.per_client
    if per_client is None and recipe and config.partition == "shards":
        per_client = recipe.per_client
    clients = config.number("clients", 50)
    return federated_data.load(
        config.data,
        clients=clients,
        partition=_partition(config, clock, clients),
        seed=config.seed,
        data_dir=config.data_dir,
        classes=recipe.classes if recipe and config.partition != "writer" else None,
        per_client=per_client,
        augment=config.augment,
    )


def _partition(config: Config, clock: Clock, clients: int) -> federated_data.Partition:
    shards = config.number("shards", 2)
    kinds: dict[str, Callable[[], federated_data.Partition]] = {
        "shards": lambda: federated_data.Shards(shards),
        "iid": federated_data.IID,
        "dirichlet": lambda: federated_data.Dirichlet(config.alpha),
        "lognormal": lambda: federated_data.LogNormal(config.sigma),
        "writer": federated_data.Writers,
        "slow-classes": lambda: federated_data.SlowClasses(
            slow=slowest(clock, clients, config.seed), classes_per_client=shards
        ),
    }
    if config.partition not in kinds:
        raise unknown("partition", config.partition, kinds)
    return kinds[config.partition]()


def slowest(clock: Clock, clients: int, seed: int) -> list[int]:
    """The slowest fifth of the clients on a clock with fixed speeds."""
    if not clock.fixed:
        raise ConfigError("slow classes need clients that are always slow: use clock=fixed")
    even = np.ones(clients, dtype=np.int64)
    times = clock.times(seed, 0, np.arange(clients), clients, Work(even, even, 0, 0))
    return [int(client) for client in np.argsort(-times, kind="stable")[: max(1, clients // 5)]]


def build_model(config: Config, data: Federated) -> Callable[[], nn.Module]:
    """The recipe's network, or one that fits the data's shape."""
    recipe, shape = config.recipe, data.train(0).x.shape[1:]
    if config.model == "auto" and recipe is not None:
        return lambda: recipe.model(data.classes)
    images = len(shape) == 3 and shape[1] == shape[2] >= 16
    kind = config.model if config.model != "auto" else ("lenet5" if images else "mlp")
    if kind == "mlp":
        return lambda: MLP(math.prod(shape), (64, 32), classes=data.classes)
    if kind == "lenet5":
        if not images:
            raise ConfigError(
                "lenet5 needs square images of at least 16 x 16 pixels: use model=mlp"
            )
        return lambda: LeNet5(classes=data.classes, channels=shape[0], size=shape[1])
    raise unknown("model", kind, ["auto", "mlp", "lenet5"])


def build_algorithm(config: Config, kind: type[Algorithm]) -> Algorithm:
    common: dict[str, Any] = {
        "batch_size": config.batch_size,
        "weighting": config.weighting,
        "tuning_epochs": config.tuning_epochs,
        "rule": build_rule(config, kind),
    }
    fields = {field.name for field in dataclasses.fields(kind)}
    if "personal" in fields and config.personal is not None:
        common["personal"] = list(_names(config.personal))
    for name, fallback in (("epochs", 1), ("head_epochs", 10), ("body_epochs", 1)):
        if name in fields:
            common[name] = config.number(name, fallback)
    for name in ("steps", "head_steps", "body_steps"):
        if name in fields:
            common[name] = getattr(config, name)
    return kind(**common)


def build_rule(config: Config, kind: type[Algorithm]) -> Rule:
    usual = _sgd_or_adam(config, kind)
    if kind is not HFMAML:
        return usual
    return HessianFreeMAML(alpha=config.maml_alpha, beta=config.maml_beta, delta=config.maml_delta)


def _sgd_or_adam(config: Config, kind: type[Algorithm]) -> Rule:
    usual_lr = config.recipe.lr if config.recipe else 0.01
    lr = usual_lr if config.lr is None else config.lr
    if config.optimizer == "sgd":
        usual = 0.5 if kind is FedRep else 0.0
        momentum = usual if config.momentum is None else config.momentum
        return SGD(lr=lr, momentum=momentum, weight_decay=config.weight_decay)
    if config.optimizer == "adam":
        return Adam(lr=lr, weight_decay=config.weight_decay)
    raise unknown("optimizer", config.optimizer, ["sgd", "adam"])


def build_participation(config: Config, usual: str) -> Participation:
    if not math.isfinite(config.sample) or (config.sample > 1 and config.sample % 1):
        raise ConfigError(
            f"the sample is a fraction up to 1 or a whole number of clients, not {config.sample}"
        )
    sample = config.sample if config.sample <= 1 else int(config.sample)
    common: dict[str, Any] = {"sample": sample, "resample": config.resample}
    kinds: dict[str, Callable[[], Participation]] = {
        "everyone": lambda: Everyone(**common),
        "doubling": lambda: Doubling(
            start=config.start,
            every=rounds_per_stage(config),
            schedule=_stages(config.schedule),
            **common,
        ),
        "first": lambda: FirstN(n=config.first, **common),
        "deadline": lambda: Deadline(seconds=config.deadline, **common),
        "adaptive": lambda: Auto(start=config.start, **common),
        "flanp-rule": lambda: FlanpRule(
            start=config.start, convexity=config.convexity, noise=config.noise, **common
        ),
    }
    kind = usual if config.participation == "auto" else config.participation
    if kind not in kinds:
        raise unknown("participation", kind, ["auto", *kinds])
    return kinds[kind]()


def rounds_per_stage(config: Config) -> int:
    """The paper's ten; less in a short run, so that it too comes to all clients."""
    if config.every is not None:
        return config.every
    return min(10, max(1, config.number("rounds", 60) // 6))


def build_clock(config: Config) -> Clock:
    exponential = {"rate": config.rate, "communication": config.communication}
    kinds: dict[str, Callable[[], Clock]] = {
        "fixed": lambda: FixedExponential(**exponential),
        "dynamic": lambda: DynamicExponential(**exponential),
        "iid": lambda: IIDExponential(**exponential),
        "pareto": lambda: Pareto(**exponential),
        "two-groups": lambda: TwoGroups(**exponential),
        "equal": lambda: Equal(**exponential),
        "devices": lambda: _devices(config),
    }
    if config.clock not in kinds:
        raise unknown("clock", config.clock, kinds)
    return kinds[config.clock]()


def _devices(config: Config) -> Clock:
    if config.devices is None:
        raise ConfigError("clock=devices needs a file of device speeds: --devices phones.csv")
    return DeviceProfiles(
        devices=config.devices,
        networks=config.networks,
        seconds_per_sample=config.seconds_per_sample,
        communication=config.communication,
    )


def _stages(text: str | None) -> list[tuple[int, int]] | None:
    if text is None:
        return None
    try:
        pairs = [stage.split("x") for stage in text.split(",")]
        return [(int(clients), int(rounds)) for clients, rounds in pairs]
    except ValueError:
        raise ConfigError(
            f"cannot read the schedule '{text}': write stages as CLIENTSxROUNDS, such as 5x10,20x10"
        ) from None


def _rounds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"cannot read '{text}': write rounds such as 10,20,50") from None


def _names(text: str) -> tuple[Any, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _typed(name: str, value: Any, hint: Any, source: str) -> Any:
    """The value, if it is of the option's type; whole numbers also stand for floats."""
    wanted = get_args(hint) or (hint,)
    if str in wanted and isinstance(value, list):  # TOML has lists where a command has commas
        value = ",".join("x".join(map(str, v)) if isinstance(v, list) else str(v) for v in value)
    if float in wanted and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not any(type(value) is kind for kind in wanted):
        kinds = " or ".join(kind.__name__ for kind in wanted if kind is not type(None))
        raise ConfigError(f"option '{name}' in {source} must be of type {kinds}, not {value!r}")
    return value
