"""Inputs of any make: a tensor, or tuples and dicts of them, with the samples first in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from srpfl.errors import DataError

Tree = Any  # an array or tensor, or a tuple or dict of trees


def mapped(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """The function applied to every array of a tree.

    >>> mapped(len, {"ids": [1, 2], "rest": ([3],)})
    {'ids': 2, 'rest': (1,)}
    """
    if hasattr(tree, "dtype"):  # an array: most are, and to ask whether it is a mapping is slow
        return function(tree)
    if isinstance(tree, tuple):
        return tuple([mapped(function, value) for value in tree])
    if isinstance(tree, Mapping):
        return {name: mapped(function, value) for name, value in tree.items()}
    return function(tree)


def leaves(tree: Tree) -> list[Any]:
    """All arrays of a tree, in order."""
    found: list[Any] = []
    mapped(found.append, tree)
    return found


def gathered(function: Callable[[list[Any]], Any], trees: Sequence[Tree]) -> Tree:
    """One tree from several of the same make: the function joins what stands at one place."""
    first = trees[0]
    if isinstance(first, Mapping):
        return {name: gathered(function, [tree[name] for tree in trees]) for name in first}
    if isinstance(first, tuple):
        return tuple(gathered(function, list(values)) for values in zip(*trees, strict=True))
    return function(list(trees))


def take(tree: Tree, index: Any) -> Tree:
    """The samples at these places."""
    return mapped(lambda array: array[index], tree)


def count(tree: Tree) -> int:
    """How many samples there are."""
    sizes = {len(array) for array in leaves(tree)}
    if len(sizes) != 1:
        raise DataError(f"a sample's inputs must come in equal numbers, not {sorted(sizes)}")
    return int(sizes.pop())


def form(tree: Tree) -> Any:
    """Shape of one sample and type of every array: the same for samples of one kind."""
    return mapped(lambda array: (tuple(array.shape[1:]), str(array.dtype)), tree)


def arguments(x: Tree) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """How a model is called with such inputs."""
    if isinstance(x, Mapping):
        return (), dict(x)
    return (x, {}) if isinstance(x, tuple) else ((x,), {})
