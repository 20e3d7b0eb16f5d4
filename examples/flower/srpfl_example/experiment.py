"""What both sides must agree on: model, algorithm, participation."""

from __future__ import annotations

from flwr.app import Context
from torch import nn

import srpfl
from srpfl.flower import Experiment, OwnData, Patience, share_of


def experiment(context: Context) -> Experiment:
    config = context.run_config
    return Experiment(
        name=str(config["experiment"]),
        model=model(str(config["data"])),
        algorithm=srpfl.FedRep(
            head_epochs=int(config["head-epochs"]), body_epochs=int(config["body-epochs"])
        ),
        participation=srpfl.Doubling(start=int(config["start"]), every=int(config["every"])),
        clients=int(config["clients"]),
        rounds=int(config["rounds"]),
        evaluate_every=int(config["evaluate-every"]),
        seed=int(config["seed"]),
        out=str(config["out"]),
        patience=Patience(budget=float(config["budget"])),
    )


def model(data: str) -> nn.Module:
    if data == "cifar10":
        return srpfl.models.LeNet5(classes=10)
    return srpfl.models.MLP(64, (64, 32), classes=10)


def own_data(context: Context) -> OwnData:
    """This node's data. Yours would be read from the node's disk into an OwnData; here each node
    takes its share of a common data set, three classes each."""
    config = context.run_config
    data = str(config["data"])
    everyone = srpfl.data.load(
        data,
        clients=int(config["clients"]),
        partition=srpfl.data.Shards(3),
        seed=int(config["seed"]),
        per_client=500 if data == "cifar10" else None,
    )
    return share_of(everyone, int(context.node_config["partition-id"]))
