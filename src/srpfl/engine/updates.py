"""A rule's update of all tensors in one pass over memory, where PyTorch has one."""

from __future__ import annotations

import torch

from srpfl.engine.steps import Carried
from srpfl.local import SGD, Rule, is_bias
from srpfl.split import Params


def has_fused_update(rule: Rule) -> bool:
    return type(rule) is SGD


def update_in_place(rule: Rule, carried: Carried, grads: Params) -> None:
    """What ``rule.step`` does with these gradients, but written over ``carried``."""
    assert isinstance(rule, SGD)
    decays = {True: 0.0, False: rule.weight_decay}
    for biases, weight_decay in decays.items():
        names = [name for name in carried.params if is_bias(name) == biases]
        if names:
            torch._fused_sgd_(
                [carried.params[name] for name in names],
                [grads[name].contiguous() for name in names],
                [carried.moments["momentum"][name] for name in names] if rule.momentum else [],
                weight_decay=weight_decay,
                momentum=rule.momentum,
                lr=rule.lr,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )
