"""From the options to an experiment: all that :func:`srpfl.simulate` needs."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import nn

from srpfl import data as federated_data
from srpfl import models
from srpfl.algorithms import Dapper, HeteroFL
from srpfl.clock import Clock, Work
from srpfl.clock.base import FloatArray
from srpfl.core.trees import mapped
from srpfl.data.base import Federated
from srpfl.data.loading import NATURAL
from srpfl.errors import ConfigError, unknown, whole
from srpfl.models import MLP, LeNet5
from srpfl.options.choices import build_algorithm, build_clock, build_participation, names
from srpfl.options.config import Config, is_own
from srpfl.options.methods import method
from srpfl.options.own import Named, check_is, checked, named, prepared
from srpfl.task import TASKS, NextToken, Regression, Task

MODELS = {  # and not what is around another model, such as lora
    "mlp": MLP,
    "lenet5": LeNet5,
    **{
        name: kind
        for name in models.__all__
        if isinstance(kind := getattr(models, name), type) and issubclass(kind, nn.Module)
    },
}


def experiment(config: Config) -> dict[str, Any]:
    """All that :func:`srpfl.simulate` needs, except where to keep the run."""
    chosen = method(config.method)
    if config.seed < 0:
        raise ConfigError(f"the seed must be zero or a positive number, not {config.seed}")
    if config.number("clients", 50) < 1:
        raise ConfigError(f"there must be at least one client, not {config.clients}")
    clock = build_clock(config)
    algorithm = build_algorithm(config, chosen)
    data = build_data(config, clock)
    if isinstance(algorithm, Dapper):
        data = federated_data.Interpolated(data, algorithm.share, config.seed)
    if isinstance(algorithm, HeteroFL) and algorithm.sizes is None and clock.fixed:
        ranks = by_speed(clock, data.clients, config.seed, len(algorithm.widths))
        algorithm = dataclasses.replace(algorithm, sizes=ranks)
    task = build_task(config, data)
    kinds = None if config.evaluations is None else names(config.evaluations)
    return {
        "name": config.title,
        "data": data,
        "task": task,
        "model": build_model(config, data, task),
        "algorithm": algorithm,
        "participation": build_participation(config, chosen.participation),
        "clock": clock,
        "rounds": config.number("rounds", 60),
        "seed": config.seed,
        "evaluate_every": config.evaluate_every,
        "evaluate_at": _rounds(config.evaluate_at),
        "evaluations": kinds,
        "evaluate_share": share if (share := config.evaluate_share) <= 1 else round(share),
        "stop_at": config.stop_at,
        "engine": config.engine,
        "device": config.device,
        "precision": config.precision,
        "checkpoint_every": config.checkpoint_every,
        "options": config.for_folder(),
    }


def build_data(config: Config, clock: Clock) -> Federated:
    """A data set by name, dealt out; or what a user's function returns."""
    if is_own(config.data):
        return _own_data(config)
    recipe, per_client = config.recipe, config.per_client
    if per_client is None and recipe and config.partition == "shards":
        per_client = recipe.per_client
    clients = config.number("clients", 50)
    by_owner = config.partition in ("natural", "writer")
    return federated_data.load(
        config.data,
        clients=clients,
        partition=_partition(config, clock, clients),
        seed=config.seed,
        data_dir=config.data_dir,
        classes=recipe.classes if recipe and not by_owner else None,
        per_client=per_client,
        augment=config.augment,
        **_data_settings(config),
    )


def _own_data(config: Config) -> Federated:
    choice = named("data", config.data, {})
    made = prepared(
        "data",
        choice,
        config.settings("data"),
        usual={"clients": config.number("clients", 50)},
        asked={
            "seed": config.seed,
            **{
                name: getattr(config, name) for name in ("clients", "data_dir") if config.gave(name)
            },
        },
    )()
    check_is("federated data set", choice, made, Federated)
    data: Federated = made
    if whole(f"the number of clients of {choice.name}", data.clients) < 1:
        raise ConfigError(f"{choice.name} has no clients")
    samples: Any = data.train(0)
    if not isinstance(samples, tuple) or len(samples) != 2:
        raise ConfigError(
            f"the training data of a client of {choice.name} must be srpfl.data.Samples(x, y), not "
            f"of type {type(samples).__name__}"
        )
    return data


def _data_settings(config: Config) -> dict[str, Any]:
    settings = config.settings("data")
    options = inspect.signature(federated_data.load).parameters
    for name in settings:
        if name in options:
            flag = name.replace("_", "-")
            raise ConfigError(f"'{name}' is no setting of {config.data} but an option: --{flag}")
    if config.data not in NATURAL:
        return settings  # there are none, as loading will say
    return checked("data", Named(config.data, NATURAL[config.data]), settings)


def _partition(config: Config, clock: Clock, clients: int) -> federated_data.Partition:
    shards = config.number("shards", 2)
    kinds: dict[str, Callable[[], federated_data.Partition]] = {
        "shards": lambda: federated_data.Shards(shards),
        "iid": federated_data.IID,
        "dirichlet": lambda: federated_data.Dirichlet(config.alpha),
        "lognormal": lambda: federated_data.LogNormal(config.sigma),
        "natural": federated_data.Natural,
        "writer": federated_data.Natural,
        "slow-classes": lambda: federated_data.SlowClasses(
            slow=slowest(clock, clients, config.seed), classes_per_client=shards
        ),
    }
    wanted = str(config.partition)
    if wanted not in kinds:
        raise unknown("partition", wanted, kinds)
    return kinds[wanted]()


def slowest(clock: Clock, clients: int, seed: int) -> list[int]:
    """The slowest fifth of the clients on a clock with fixed speeds."""
    if not clock.fixed:
        raise ConfigError("slow classes need clients that are always slow: use clock=fixed")
    order = np.argsort(-_times(clock, clients, seed), kind="stable")
    return [int(client) for client in order[: max(1, clients // 5)]]


def by_speed(clock: Clock, clients: int, seed: int, groups: int) -> tuple[int, ...]:
    """The group of each client, as many in one as in another, the fastest in group 0."""
    ranks = np.argsort(np.argsort(_times(clock, clients, seed), kind="stable"), kind="stable")
    return tuple((ranks * groups // clients).tolist())


def _times(clock: Clock, clients: int, seed: int) -> FloatArray:
    even = np.ones(clients, dtype=np.int64)
    return clock.times(seed, 0, np.arange(clients), clients, Work(even, even, 0, 0))


def build_task(config: Config, data: Federated) -> Task:
    """The task that was named, or the data's own."""
    wanted: Any = config.task or getattr(data, "task", "classification")
    settings = config.settings("task")
    if not isinstance(wanted, str):
        if settings:
            raise ConfigError("the data set brings its task: name one by --task to set it")
        check_is("task", Named(config.data, wanted), wanted, Task)
        own: Task = wanted
        return own
    choice = named("task", wanted, {**TASKS, **{kind.__name__: kind for kind in TASKS.values()}})
    made = prepared("task", choice, settings)()
    check_is("task", choice, made, Task)
    task: Task = made
    return task


def build_model(config: Config, data: Federated, task: Task) -> nn.Module | Callable[[], nn.Module]:
    """A user's model, the recipe's network, or one that fits the data's shape."""
    settings, recipe = config.settings("model"), config.recipe
    facts = _facts(config, data)
    if is_own(config.model):
        choice = named("model", config.model, {})
        if isinstance(choice.make, nn.Module):
            if settings:
                raise ConfigError(f"{choice.name} is a model already, and takes no settings")
            return choice.make
        return prepared("model", choice, settings, asked=facts)
    facts |= _sizes(facts["shape"])
    facts["classes"] = outputs = _outputs(data, task)
    if config.model == "auto" and recipe is not None:
        choice = Named(recipe.model.__name__, recipe.model)
        asked = {"classes": outputs, "tokens": recipe.tokens, **recipe.sizes}
        return prepared("model", choice, settings, asked=asked)
    images = "size" in facts and facts["size"] >= 16
    if config.model == "auto":
        if "inputs" not in facts or isinstance(task, NextToken):
            raise ConfigError("there is no usual model for such data: name one, --model module:net")
        kind = "lenet5" if images else "mlp"
    else:
        kind = config.model
    choice = named("model", kind, {"auto": None, **MODELS})
    if choice.make is LeNet5 and not images:
        raise ConfigError("lenet5 needs square images of at least 16 x 16 pixels: use model=mlp")
    return prepared("model", choice, settings, usual={"hidden": (64, 32)}, asked=facts)


def _facts(config: Config, data: Federated) -> dict[str, Any]:
    """What a model's function can ask for by the names of its parameters."""
    shape = mapped(lambda array: tuple(np.shape(array)[1:]), data.train(0)[0])
    tokens = config.recipe.tokens if config.recipe else getattr(data, "tokens", None)
    known = {} if tokens is None else {"tokens": tokens}
    return {"classes": data.classes, "shape": shape, **known}


def _sizes(shape: Any) -> Mapping[str, Any]:
    """A sample's shape by the names that our own models have for it."""
    if not isinstance(shape, tuple) or not all(isinstance(size, int) for size in shape):
        return {}  # several inputs
    sizes = {"inputs": math.prod(shape)}
    if len(shape) == 1:
        sizes["length"] = shape[0]
    if len(shape) in (2, 3):
        sizes["channels"] = shape[0]
    if len(shape) == 3 and shape[1] == shape[2]:
        sizes["size"] = shape[1]
    return sizes


def _outputs(data: Federated, task: Task) -> int:
    """How many numbers a model returns per sample."""
    each = np.shape(data.train(0)[1])[1:]
    if data.classes and not each and not isinstance(task, Regression):
        return data.classes
    return math.prod(each)


def _rounds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"cannot read '{text}': write rounds such as 10,20,50") from None
