"""A model's layers as a graph, read from its code without running a number through it."""

from __future__ import annotations

from torch import fx, nn


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        ours = type(m).__module__.startswith("srpfl.engine")
        return ours or super().is_leaf_module(m, module_qualified_name)


def fixed_graph(model: nn.Module) -> fx.Graph | None:
    """The model's layers in order, if they are the same whatever the inputs and the mode."""
    graphs: list[fx.Graph] = []
    for training in (True, False):
        model.train(training)
        try:
            graphs.append(_Tracer().trace(model))
        except Exception:  # whatever a model's code does with a stand-in for its inputs
            return None
    written = [str(graph.python_code("self").src) for graph in graphs]
    return graphs[0] if written[0] == written[1] else None


def module_of(node: fx.Node, model: nn.Module) -> nn.Module | None:
    """The layer that a node calls, if it calls one."""
    return model.get_submodule(str(node.target)) if node.op == "call_module" else None
