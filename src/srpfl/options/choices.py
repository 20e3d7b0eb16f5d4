"""From the options to an algorithm, a participation policy and a clock."""

from __future__ import annotations

import math
from typing import Any
from warnings import warn

from srpfl import algorithms
from srpfl.algorithms import (
    HFMAML,
    SCAFFOLD,
    Algorithm,
    FedRep,
    PerFedAvg,
    PersonalHead,
    SharesAll,
)
from srpfl.algorithms.per_fedavg import FirstOrderMAML
from srpfl.clock import (
    Clock,
    DeviceProfiles,
    Dropouts,
    DynamicExponential,
    Equal,
    FixedExponential,
    IIDExponential,
    Pareto,
    Phones,
    TwoGroups,
)
from srpfl.core.rules import SGD, Adam, Clipped, HessianFreeMAML, Rule, Scheduled
from srpfl.errors import ConfigError, SrpflWarning, unknown
from srpfl.options.config import AUTO, FORMER_AUTO, Config
from srpfl.options.methods import Method
from srpfl.options.own import Named, check_is, named, prepared
from srpfl.participation import (
    Auto,
    Budgeted,
    Compass,
    Deadline,
    DivFL,
    Doubling,
    Everyone,
    Fair,
    FedAsync,
    FedBuff,
    FedCS,
    FirstN,
    FlanpRule,
    Oort,
    OverSelection,
    Participation,
    PowerOfChoice,
    SemiAsync,
    TiFL,
    TypicalDeadline,
)

ALGORITHMS = {
    name: kind
    for name, kind in vars(algorithms).items()
    if isinstance(kind, type)
    and issubclass(kind, Algorithm)
    and kind not in (Algorithm, PersonalHead, SharesAll)
}
POLICIES = {
    "everyone": Everyone,
    "doubling": Doubling,
    "first": FirstN,
    "deadline": Deadline,
    "auto": Auto,
    "flanp-rule": FlanpRule,
    "over-selection": OverSelection,
    "typical-deadline": TypicalDeadline,
    "oort": Oort,
    "power-of-choice": PowerOfChoice,
    "fair": Fair,
    "fedcs": FedCS,
    "tifl": TiFL,
    "divfl": DivFL,
    "fedbuff": FedBuff,
    "fedasync": FedAsync,
    "semi-async": SemiAsync,
    "compass": Compass,
}
CLOCKS = {
    "fixed": FixedExponential,
    "dynamic": DynamicExponential,
    "iid": IIDExponential,
    "pareto": Pareto,
    "two-groups": TwoGroups,
    "equal": Equal,
    "devices": DeviceProfiles,
    "phones": Phones,
    "dropouts": Dropouts,
}
SCHEDULE = ("lr_decay", "lr_cosine", "lr_warmup")
RULE = ("optimizer", "lr", "momentum", "weight_decay")  # the options that make a rule


def build_algorithm(config: Config, method: Method) -> Algorithm:
    """The method's algorithm, or the one named in its place."""
    choice = Named(method.algorithm.__name__, method.algorithm)
    if config.algorithm is not None:
        choice = named("algorithm", config.algorithm, ALGORITHMS)
    usual: dict[str, Any] = {
        name: getattr(config, name)
        for name in (
            *("batch_size", "weighting", "tuning_epochs"),
            *("steps", "head_steps", "body_steps"),
        )
        if getattr(config, name) is not None  # a method may count steps by itself
    }
    for name, fallback in (("epochs", 1), ("head_epochs", 10), ("body_epochs", 1)):
        usual[name] = config.number(name, fallback)
    asked = {name: value for name, value in usual.items() if config.gave(name)}
    if config.personal is not None:
        asked["personal"] = list(names(config.personal))
    asked["rule"] = build_rule(config, choice)
    made = prepared("algorithm", choice, config.settings("algorithm"), usual=usual, asked=asked)()
    check_is("algorithm", choice, made, Algorithm)
    algorithm: Algorithm = made
    return algorithm


def build_rule(config: Config, choice: Named) -> Rule:
    """A user's algorithm may have a rule of its own; options for rules come before it."""
    rule: Rule
    if config.clip is not None and _is(choice.make, (HFMAML, SCAFFOLD)):
        raise ConfigError(f"the steps of {choice.name} cannot be clipped: leave --clip out")
    mine = "rule" in choice.parameters and not choice.leaves_open("rule")
    if mine and not any(map(config.gave, RULE)):
        rule = choice.parameters["rule"].default
    else:
        rule = _sgd_or_adam(config, choice.make)
        if _is(choice.make, HFMAML):
            alpha, beta, delta = config.maml_alpha, config.maml_beta, config.maml_delta
            kind = FirstOrderMAML if _is(choice.make, PerFedAvg) else HessianFreeMAML
            rule = kind(alpha=alpha, beta=beta, delta=delta)
    if any(map(config.gave, SCHEDULE)):
        if _is(choice.make, (HFMAML, SCAFFOLD)):
            raise ConfigError(f"the learning rate of {choice.name} has no schedule: leave it out")
        rule = Scheduled(
            rule=rule, decay=config.lr_decay, cosine=config.lr_cosine, warmup=config.lr_warmup
        )
    return rule if config.clip is None else Clipped(rule=rule, norm=config.clip)


def _sgd_or_adam(config: Config, kind: Any) -> Rule:
    usual_lr = config.recipe.lr if config.recipe else 0.01
    lr = usual_lr if config.lr is None else config.lr
    if config.optimizer == "sgd":
        usual = 0.5 if _is(kind, FedRep) else 0.0
        momentum = usual if config.momentum is None else config.momentum
        return SGD(lr=lr, momentum=momentum, weight_decay=config.weight_decay)
    if config.optimizer == "adam":
        return Adam(lr=lr, weight_decay=config.weight_decay)
    raise unknown("optimizer", config.optimizer, ["sgd", "adam"])


def build_participation(config: Config, usual: str) -> Participation:
    """The policy that was named, or the usual one of the method."""
    if not math.isfinite(config.sample) or (config.sample > 1 and config.sample % 1):
        raise ConfigError(
            f"the sample is a fraction up to 1 or a whole number of clients, not {config.sample}"
        )
    # By the names that the policies have for them: the option's name and its value.
    values: dict[str, tuple[str, Any]] = {
        "sample": ("sample", config.sample if config.sample <= 1 else int(config.sample)),
        "resample": ("resample", config.resample),
        "start": ("start", config.start),
        "every": ("every", rounds_per_stage(config)),
        "schedule": ("schedule", _stages(config.schedule)),
        "n": ("first", config.first),
        "seconds": ("deadline", config.deadline),
        "convexity": ("convexity", config.convexity),
        "noise": ("noise", config.noise),
    }
    kind = config.participation or usual
    known = {**POLICIES, **_by_class(POLICIES)}
    if kind == FORMER_AUTO:
        kind = AUTO
        warn("--participation adaptive is now called auto", SrpflWarning, stacklevel=2)
    choice = named("participation", kind, known)
    made = prepared(
        "participation",
        choice,
        config.settings("participation"),
        usual={name: value for name, (_, value) in values.items()},
        asked={name: value for name, (option, value) in values.items() if config.gave(option)},
    )()
    check_is("participation policy", choice, made, Participation)
    policy: Participation = made
    return policy if config.energy is None else Budgeted(policy=policy, updates=config.energy)


def rounds_per_stage(config: Config) -> int:
    """The paper's ten; less in a short run, so that it too comes to all clients."""
    if config.every is not None:
        return config.every
    return min(10, max(1, config.number("rounds", 60) // 6))


def build_clock(config: Config) -> Clock:
    """The clock that was named."""
    choice = named("clock", config.clock, {**CLOCKS, **_by_class(CLOCKS)})
    options = ("rate", "communication", "devices", "networks", "seconds_per_sample")
    usual = {name: getattr(config, name) for name in options}
    settings = config.settings("clock")
    if choice.make is DeviceProfiles and config.devices is None and "devices" not in settings:
        raise ConfigError("clock=devices needs a file of device speeds: --devices phones.csv")
    asked = {name: value for name, value in usual.items() if config.gave(name)}
    made = prepared("clock", choice, settings, usual=usual, asked=asked)()
    check_is("clock", choice, made, Clock)
    clock: Clock = made
    return clock


def names(text: str) -> tuple[Any, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _by_class(kinds: dict[str, Any]) -> dict[str, Any]:
    return {kind.__name__: kind for kind in kinds.values()}


def _is(kind: Any, other: type | tuple[type, ...]) -> bool:
    return isinstance(kind, type) and issubclass(kind, other)


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
