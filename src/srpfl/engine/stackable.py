"""Whether clients' models can be trained as one stack."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from srpfl.data.base import Federated
from srpfl.engine.base import cross_entropy
from srpfl.engine.dropout import key_names
from srpfl.engine.fit import draws_itself, probe, ready
from srpfl.engine.layers import with_stackable_layers
from srpfl.engine.precision import called
from srpfl.engine.steps import Batch, Problem
from srpfl.engine.threads import one_thread
from srpfl.errors import ConfigError
from srpfl.split import state_of


def check_stackable(model: nn.Module, data: Federated) -> None:
    """Refuse a model that cannot be trained as a stack of clients."""
    # Statistics over a batch would mix padding, and a stack of clients has no place for them.
    for name, module in model.named_modules():
        if isinstance(module, _NormBase) and (
            module.track_running_stats or "BatchNorm" in type(module).__name__
        ):
            raise ConfigError(
                f"the vectorised engine cannot train '{name}' ({type(module).__name__}): its "
                "statistics run over a batch; use engine='loop' or 'workers', or GroupNorm instead"
            )
    if draws_itself(model, data):
        raise ConfigError(
            "the vectorised engine cannot train a model that draws random numbers by itself "
            "(F.dropout, the dropout of a recurrent layer): use engine='loop' or 'workers', or "
            "nn.Dropout layers instead"
        )
    # Anything else shows when a step of two clients is tried.
    net, two = with_stackable_layers(ready(model)), probe(data)
    problem = Problem(called(net), cross_entropy, tuple(key_names(net)))
    own = {n: v.detach().expand(2, *v.shape) for n, v in net.named_parameters() if v.requires_grad}
    rest = {name: value for name, value in state_of(net).items() if name not in own}
    none = torch.zeros(2, dtype=torch.int64)
    batch = Batch(
        x=torch.stack([two, two]),
        y=none[:, None].expand(2, 2),
        weights=torch.full((2, 2), 0.5),
        keys=none,
        active=none == 0,
    )
    try:
        with one_thread():
            problem.losses_and_gradient(own, {}, rest, batch)
    except Exception as error:  # whatever PyTorch cannot do with the model
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"the vectorised engine cannot train this model ({reason}): use engine='loop' or "
            "'workers'"
        ) from error
