"""Whether a model can be trained on the data at all, found out before the first round."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from srpfl.data.base import Federated, Samples
from srpfl.engine.dropout import with_keyed_dropout
from srpfl.engine.store import tensors
from srpfl.engine.threads import one_thread
from srpfl.errors import ConfigError


def check_fit(model: nn.Module, data: Federated) -> None:
    """Refuse a model that cannot take the samples or lacks classes."""
    for name, value in model.named_parameters():
        if is_lazy(value) or value.is_meta:
            raise ConfigError(
                f"'{name}' has no values yet: give the model its sizes, on a real device"
            )
    two = probe(data)
    try:
        with one_thread(), torch.random.fork_rng(devices=[]), torch.no_grad():
            outputs = ready(model)(two)
    except Exception as error:  # whatever the model's own code raises
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        shape = tuple(two.shape[1:])
        raise ConfigError(f"the model does not take samples of shape {shape}: {reason}") from error
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != 2:
        raise ConfigError("the model must return one row of scores, one for each class, per sample")
    if outputs.shape[1] < data.classes:
        raise ConfigError(
            f"the model tells {outputs.shape[1]} classes apart and the data has {data.classes}: "
            "give its last layer as many outputs"
        )


def draws_itself(model: nn.Module, data: Federated) -> bool:
    """Whether training the model uses PyTorch's global stream of random numbers: F.dropout, the
    dropout of recurrent or attention layers, noise."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        with one_thread():
            ready(model)(probe(data))
        return not torch.equal(before, torch.get_rng_state())


def ready(model: nn.Module) -> nn.Module:
    """A copy to try things out with."""
    return with_keyed_dropout(model).cpu().float().train()


def probe(data: Federated) -> Tensor:
    """One sample twice, for layers with statistics over a batch."""
    x, y = data.train(0)
    one, _ = tensors(Samples(x[:1], y[:1]), torch.device("cpu"))
    return data.transform.prepare(torch.cat([one, one]))
