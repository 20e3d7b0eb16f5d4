"""FedAvg with Apple's pfl, as its tutorials do."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from same_work import BATCH, LR, Rounds, initial, samples_of
from torch import nn

from srpfl.core.split import state_of


class Pfl:
    """pfl in one process, with one thread: more lose on such batches."""

    def __init__(self, name: str) -> None:
        self.name = name

    def play(self, rounds: int) -> Rounds:

        samples = samples_of(self.name)
        marks = [time.perf_counter()]

        class Marks(TrainingProcessCallback):
            def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
                marks.append(time.perf_counter())
                return False, Metrics()

        class Net(nn.Module):
            def __init__(self, inner: nn.Module) -> None:
                super().__init__()
                self.inner = inner

            def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                return F.cross_entropy(self.inner(x), y)

            def metrics(self, *_: Any) -> dict[str, Any]:
                return {}

        net = Net(initial(self.name))
        sampler = get_user_sampler("minimize_reuse", list(range(len(samples))))
        clients = FederatedDataset(lambda user: Dataset(samples[user], user_id=str(user)), sampler)
        model = PyTorchModel(
            net,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
        )
        params = NNAlgorithmParams(
            central_num_iterations=rounds + 1,
            evaluation_frequency=rounds + 2,  # none but at the start, which is not timed
            train_cohort_size=len(samples),
            val_cohort_size=0,
        )
        work = NNTrainHyperParams(
            local_batch_size=BATCH, local_num_epochs=1, local_learning_rate=LR
        )
        backend = SimulatedBackend(clients, None)
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            FederatedAveraging().run(
                params, backend, model, work, callbacks=[Marks()], send_metrics_to_platform=False
            )
        finally:
            torch.set_num_threads(before)
        times = [b - a for a, b in itertools.pairwise(marks)]
        start_up = max(0.0, times[0] - statistics.median(times[1:]))
        return times[1:], start_up, state_of(net.inner)
