"""Whether a model can be trained on the data at all, found out before the first round."""

from __future__ import annotations

import torch
from torch import nn

from srpfl.data.base import Federated
from srpfl.engine.dropout import with_keyed_dropout
from srpfl.errors import ConfigError


def check_fit(model: nn.Module, data: Federated) -> None:
    """Refuse a model that cannot take the samples, lacks classes or draws random numbers itself.

    Numbers from PyTorch's global stream would depend on the order of clients, and an interrupted
    run would go on with others.
    """
    model = with_keyed_dropout(model).cpu().float().train()
    sample = data.transform.prepare(torch.from_numpy(data.train(0).x[:1]))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        try:
            # Two samples, for layers with statistics over a batch.
            outputs = model(torch.cat([sample, sample]))
        except (RuntimeError, ValueError, TypeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"the model does not take samples of shape {tuple(sample.shape[1:])}: {reason}"
            ) from error
        draws = not torch.equal(before, torch.get_rng_state())
    if not isinstance(outputs, torch.Tensor) or outputs.ndim != 2 or len(outputs) != 2:
        raise ConfigError("the model must return one row of scores, one for each class, per sample")
    if outputs.shape[1] < data.classes:
        raise ConfigError(
            f"the model tells {outputs.shape[1]} classes apart and the data has {data.classes}: "
            "give its last layer as many outputs"
        )
    if draws:
        raise ConfigError(
            "the model draws random numbers of its own in training (such as F.dropout, or the "
            "dropout of a recurrent layer), which nobody could repeat: use nn.Dropout layers"
        )
