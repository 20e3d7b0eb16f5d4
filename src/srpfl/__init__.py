"""Personalised federated learning that does not wait for stragglers.

Nothing is imported before it is used: ``import srpfl`` is quick, and PyTorch comes with the first
name that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers; at run time __getattr__ finds the same
    from srpfl import (
        algorithms,
        clock,
        data,
        linear,
        models,
        participation,
        report,
        task,
        theory,
        trackers,
    )
    from srpfl.algorithms import (
        APFL,
        CA2FL,
        HFMAML,
        IFCA,
        L2GD,
        MAPPER,
        MOCHA,
        SCAFFOLD,
        ActPerFL,
        CA2FLRep,
        Dapper,
        Ditto,
        FedAdagrad,
        FedAdam,
        FedAMP,
        FedAvg,
        FedAvgFT,
        FedAvgM,
        FedBABU,
        FedBN,
        FedDyn,
        FedGATE,
        FedNova,
        FedPer,
        FedProto,
        FedProx,
        FedRep,
        FedShuffle,
        FedYogi,
        HeteroFL,
        LGFedAvg,
        LocalSGD,
        MeanRegularised,
        MimeLite,
        PartialTraining,
        PerFedAvg,
        PFedMe,
    )
    from srpfl.clock import DeviceProfiles, DynamicExponential, FixedExponential, IIDExponential
    from srpfl.core.rules import (
        SGD,
        Adam,
        Clipped,
        Corrected,
        HessianFreeMAML,
        Proximal,
        Scheduled,
    )
    from srpfl.core.split import combine, partition
    from srpfl.errors import SrpflError, SrpflWarning
    from srpfl.loop.simulation import simulate
    from srpfl.loop.together import simulate_together
    from srpfl.loop.watchers import Watcher
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
        PowerOfChoice,
        SemiAsync,
        TiFL,
        TypicalDeadline,
    )
    from srpfl.runs.comparison import compare
    from srpfl.runs.run import Run
    from srpfl.sweeps.playing import sweep
    from srpfl.task import Classification, MultiLabel, NextToken, Regression, Scored, Task

__version__ = "0.1.0"

__all__ = [
    "APFL",
    "CA2FL",
    "HFMAML",
    "IFCA",
    "L2GD",
    "MAPPER",
    "MOCHA",
    "SCAFFOLD",
    "SGD",
    "ActPerFL",
    "Adam",
    "Auto",
    "Budgeted",
    "CA2FLRep",
    "Classification",
    "Clipped",
    "Compass",
    "Corrected",
    "Dapper",
    "Deadline",
    "DeviceProfiles",
    "Ditto",
    "DivFL",
    "Doubling",
    "DynamicExponential",
    "Everyone",
    "Fair",
    "FedAMP",
    "FedAdagrad",
    "FedAdam",
    "FedAsync",
    "FedAvg",
    "FedAvgFT",
    "FedAvgM",
    "FedBABU",
    "FedBN",
    "FedBuff",
    "FedCS",
    "FedDyn",
    "FedGATE",
    "FedNova",
    "FedPer",
    "FedProto",
    "FedProx",
    "FedRep",
    "FedShuffle",
    "FedYogi",
    "FirstN",
    "FixedExponential",
    "FlanpRule",
    "HessianFreeMAML",
    "HeteroFL",
    "IIDExponential",
    "LGFedAvg",
    "LocalSGD",
    "MeanRegularised",
    "MimeLite",
    "MultiLabel",
    "NextToken",
    "Oort",
    "OverSelection",
    "PFedMe",
    "PartialTraining",
    "PerFedAvg",
    "PowerOfChoice",
    "Proximal",
    "Regression",
    "Run",
    "Scheduled",
    "Scored",
    "SemiAsync",
    "SrpflError",
    "SrpflWarning",
    "Task",
    "TiFL",
    "TypicalDeadline",
    "Watcher",
    "algorithms",
    "clock",
    "combine",
    "compare",
    "data",
    "linear",
    "models",
    "participation",
    "partition",
    "report",
    "simulate",
    "simulate_together",
    "sweep",
    "task",
    "theory",
    "trackers",
]

ROOMS = (
    "algorithms",
    "clock",
    "data",
    "linear",
    "models",
    "participation",
    "report",
    "task",
    "theory",
    "trackers",
)
HOMES = (  # of the other names; the light ones first
    "errors",
    "loop.watchers",
    "algorithms",
    "clock",
    "core.rules",
    "core.split",
    "participation",
    "task",
    "runs.run",
    "loop.simulation",
    "loop.together",
    "sweeps.playing",
    "runs.comparison",
)


def __getattr__(name: str) -> Any:
    if name in ROOMS:
        return import_module(f".{name}", __name__)
    if name in __all__:
        for home in HOMES:
            found = getattr(import_module(f".{home}", __name__), name, None)
            if found is not None:
                globals()[name] = found  # found once, it is found at once
                return found
    raise AttributeError(f"module 'srpfl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
