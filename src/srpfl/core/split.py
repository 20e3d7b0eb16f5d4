"""Which part of a model is shared, and which is personal: a predicate on parameter names.

Two functions do all the work: :func:`partition` parts a model's state and :func:`combine` puts it
together. Buffers (such as BatchNorm's statistics) travel with the shared part unless the predicate
makes them personal, exactly as parameters do. What nobody trains belongs to neither part: it is
fixed, and stays in the engine's model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from srpfl.errors import ConfigError

Params = dict[str, Tensor]
Predicate = Callable[[str], bool]
Personal = str | Collection[str] | Predicate


def state_of(model: nn.Module) -> Params:
    """All parameters and persistent buffers by name, detached copies. A tensor that the model uses
    under several names (tied weights) is there once, under the first of them."""
    state = model.state_dict()
    return {name: state[name].detach().clone() for name in _first_names(model)}


def _kept(value: Tensor) -> Tensor:
    """A copy in which small steps are not lost: a half-precision model is trained in single."""
    low = value.is_floating_point() and value.dtype.itemsize < 4
    return value.detach().to(torch.float32 if low else value.dtype, copy=True)


def _first_names(model: nn.Module) -> list[str]:
    first: dict[int, str] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        first.setdefault(id(value), name)
    return list(first.values())


@dataclass(frozen=True)
class Split:
    """A model's state in three parts."""

    shared: Params  # sent, averaged, kept by the server
    personal: Params  # kept by each client
    fixed: Params  # trained by nobody: neither sent nor averaged nor saved
    trainable: frozenset[str]  # the parameters among the first two; the rest are buffers

    @property
    def trained(self) -> Params:
        """The parameters of the shared part, without its buffers."""
        return {name: value for name, value in self.shared.items() if name in self.trainable}


def split(model: nn.Module, personal: Predicate) -> Split:
    """The three parts of a model.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    >>> _ = model[0].requires_grad_(False)
    >>> parts = split(model, lambda name: name.startswith("2."))
    >>> list(parts.shared), list(parts.personal), list(parts.fixed)
    (['1.weight', '1.bias'], ['2.weight', '2.bias'], ['0.weight', '0.bias'])
    """
    check_ties(model, personal)
    fixed, state = fixed_of(model), model.state_dict()
    free = {n: _kept(state[n]) for n in _first_names(model) if n not in fixed}
    return Split(*partition(free, personal), fixed, trainable(model))


def trainable(model: nn.Module) -> frozenset[str]:
    """The names of the parameters that training may change."""
    return frozenset(name for name, value in model.named_parameters() if value.requires_grad)


def frozen(model: nn.Module) -> frozenset[str]:
    """Parameters that do not want a gradient, and the buffers of layers that have only such."""
    still: set[str] = set()
    for place, module in model.named_modules(remove_duplicate=False):
        own = dict(module.named_parameters(recurse=False))
        names = {name for name, value in own.items() if not value.requires_grad}
        if own and len(names) == len(own):
            names |= {name for name, _ in module.named_buffers(recurse=False)}
        still |= {f"{place}.{name}" if place else name for name in names}
    return frozenset(still)


def fixed_of(model: nn.Module) -> Params:
    """The values that nobody trains: the model's own, not copies."""
    still = frozen(model)
    first = _first_names(model)
    state = model.state_dict()
    return {name: state[name] for name in first if name in still}


def check_ties(model: nn.Module, personal: Predicate) -> None:
    """Refuse a split that cuts through one tensor with several names."""
    first: dict[int, str] = {}
    for name, value in model.named_parameters(remove_duplicate=False):
        other = first.setdefault(id(value), name)
        if personal(name) != personal(other):
            raise ConfigError(
                f"'{other}' and '{name}' are one tensor (tied weights), and the split makes only "
                "one of them personal: put both into the same part"
            )


def partition(state: Mapping[str, Tensor], personal: Predicate) -> tuple[Params, Params]:
    """Part a state into (shared, personal).

    >>> import torch
    >>> state = {"fc1.weight": torch.zeros(2), "fc2.weight": torch.ones(2)}
    >>> shared, personal = partition(state, lambda name: name.startswith("fc2."))
    >>> list(shared), list(personal)
    (['fc1.weight'], ['fc2.weight'])
    """
    shared = {name: value for name, value in state.items() if not personal(name)}
    return shared, {name: value for name, value in state.items() if name not in shared}


def combine(shared: Mapping[str, Tensor], personal: Mapping[str, Tensor]) -> Params:
    """Put two parts together; a name in both is a mistake, so it is refused.

    >>> import torch
    >>> sorted(combine({"a": torch.zeros(1)}, {"b": torch.ones(1)}))
    ['a', 'b']
    """
    both = shared.keys() & personal.keys()
    if both:
        raise ConfigError(f"both parts of the split hold {', '.join(sorted(both))}")
    return {**shared, **personal}


def last_linear(model: nn.Module, count: int = 1) -> list[str]:
    """The names of the last ``count`` linear layers, in the order in which they were defined.

    >>> last_linear(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    ['2']
    """
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if len(linear) < count:
        raise ConfigError(
            f"the model has {len(linear)} linear layers and the split needs the last {count}: "
            "name the personal part instead, for example personal=['classifier']"
        )
    return linear[len(linear) - count :]


def predicate(model: nn.Module, personal: Personal) -> Predicate:
    """Turn names or a function into a predicate on the model's parameter names.

    A name stands for a parameter or for a module with all that is in it. ``"head"`` stands for the
    last linear layer in a model that has nothing of that name.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> is_personal = predicate(model, "head")
    >>> [name for name in model.state_dict() if is_personal(name)]
    ['2.weight', '2.bias']
    """
    if callable(personal):
        return personal
    names = [personal] if isinstance(personal, str) else list(personal)
    state = model.state_dict()
    if names == ["head"] and not any(_inside(key, "head") for key in state):
        names = last_linear(model)
    for name in names:
        if not any(_inside(key, name) for key in state):
            raise ConfigError(f"the model has no part named '{name}' ({_instead(state, name)})")
    return lambda key: any(_inside(key, name) for name in names)


def outside(names: Iterable[str]) -> Predicate:
    """True for everything that is not inside one of the named modules."""
    kept = list(names)
    return lambda key: not any(_inside(key, name) for name in kept)


def _instead(keys: Iterable[str], name: str) -> str:
    """What may have been meant: the same name further inside, or what there is."""
    deeper = {
        f"'{key[: place + len(name)]}'"
        for key in keys
        if (place := f".{key}.".find(f".{name}.")) >= 0
    }
    if deeper:
        return f"there is {', '.join(sorted(deeper)[:5])}"
    return f"its parts: {', '.join(sorted({key.split('.')[0] for key in keys}))}"


def nothing(_name: str) -> bool:
    """The predicate of methods that share everything."""
    return False


def _inside(key: str, name: str) -> bool:
    return key == name or key.startswith(name + ".")
