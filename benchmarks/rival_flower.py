"""FedAvg with Flower's simulation on Ray, as its quickstarts do."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg as Strategy
from flwr.simulation import run_simulation
from same_work import BATCH, LR, Rounds, initial, samples_of, setting_of

# Ray's workers must find same_work, and not look for GPUs.
paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


def client_app(name: str) -> Any:

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        x, y = samples_of(name)[int(context.node_config["partition-id"])]
        model = initial(name)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(model.parameters(), lr=LR)
        for some in torch.randperm(len(y)).split(BATCH):
            optimiser.zero_grad()
            F.cross_entropy(model(x[some]), y[some]).backward()
            optimiser.step()
        content = RecordDict(
            {
                "arrays": ArrayRecord(model.state_dict()),
                "metrics": MetricRecord({"num-examples": len(y)}),
            }
        )
        return Message(content=content, reply_to=message)

    return app


class Flower:
    """Flower's simulation on Ray, one core for each client at work."""

    def __init__(self, name: str) -> None:
        self.name = name

    def play(self, rounds: int) -> Rounds:

        marks = [time.perf_counter()]
        last: dict[str, torch.Tensor] = {}
        clients = setting_of(self.name).clients

        class Marked(Strategy):
            def aggregate_train(self, *given: Any, **named: Any) -> Any:
                found = super().aggregate_train(*given, **named)
                marks.append(time.perf_counter())
                return found

        server = ServerApp()

        @server.main()
        def main(grid: Any, context: Any) -> None:
            strategy = Marked(
                fraction_train=1.0,
                fraction_evaluate=0.0,
                min_train_nodes=clients,
                min_available_nodes=clients,
            )
            arrays = ArrayRecord(initial(self.name).state_dict())
            result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=rounds + 1)
            last.update(result.arrays.to_torch_state_dict())

        run_simulation(
            server_app=server,
            client_app=client_app(self.name),
            num_supernodes=clients,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0}},
        )
        times = [b - a for a, b in itertools.pairwise(marks)]
        start_up = max(0.0, times[0] - statistics.median(times[1:]))
        return times[1:], start_up, last
