"""A rule's update in as few passes over memory as can be."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, fx

from srpfl.core.rules import SGD, Rule, is_bias
from srpfl.engine.steps import Carried

Factors = tuple[Tensor, Tensor]  # of a gradient: the batched matrix product of the two


def has_fused_update(rule: Rule) -> bool:
    return type(rule) is SGD


def takes_factors(rule: Rule) -> bool:
    """Whether the update has no other use for a gradient than to add it to the parameters."""
    return type(rule) is SGD and rule.momentum == 0


def update_in_place(rule: Rule, carried: Carried, grads: Mapping[str, Tensor | Factors]) -> None:
    """What ``rule.step`` does with these gradients, but written over ``carried``."""
    assert isinstance(rule, SGD)
    formed = {name: grad for name, grad in grads.items() if isinstance(grad, Tensor)}
    for name, grad in grads.items():
        if not isinstance(grad, Tensor):
            _add_product(rule, carried, name, grad)
    for biases, weight_decay in ((True, 0.0), (False, rule.weight_decay)):
        names = [name for name in formed if is_bias(name) == biases]
        if names:
            torch._fused_sgd_(
                [carried.params[name] for name in names],
                [formed[name].contiguous() for name in names],
                [carried.moments["momentum"][name] for name in names] if rule.momentum else [],
                weight_decay=weight_decay,
                momentum=rule.momentum,
                lr=rule.lr,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )


def _add_product(rule: SGD, carried: Carried, name: str, factors: Factors) -> None:
    """The update with a gradient that never becomes a tensor of its own."""
    decay = 0.0 if is_bias(name) else rule.weight_decay
    carried.params[name].baddbmm_(*factors, beta=1 - rule.lr * decay, alpha=-rule.lr)


def with_factors(program: fx.GraphModule, grads: int) -> list[bool]:
    """Let the program's last outputs, the gradients, be factors where they are products. Says
    which are."""
    graph = program.graph
    output = next(node for node in graph.nodes if node.op == "output")
    values = list(output.args[0])
    split = []
    first, last = values[:-grads], values[-grads:]
    for node in last:
        product = node.target is torch.ops.aten.bmm.default and len(node.users) == 1
        split.append(product)
        first += list(node.args) if product else [node]
    output.args = (first,)
    graph.eliminate_dead_code()
    program.recompile()
    return split
