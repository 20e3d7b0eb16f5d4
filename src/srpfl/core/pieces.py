"""What a client has of a tensor, and sends or gets of it: the numbers at some places."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from srpfl.core.split import Params

Places = dict[str, Tensor]  # for some tensors, which of their numbers; of others, all


class Travels(NamedTuple):
    """What goes to a client and what comes back, of the shared part."""

    down: Places = {}  # noqa: RUF012 - nobody writes to it
    up: Places = {}  # noqa: RUF012


def cut(params: Params, places: Places) -> Params:
    """Only the numbers at these places, in a row.

    >>> import torch
    >>> cut({"w": torch.tensor([1.0, 2.0, 3.0])}, {"w": torch.tensor([True, False, True])})
    {'w': tensor([1., 3.])}
    """
    return {n: value[places[n]] if n in places else value for n, value in params.items()}


def filled(pieces: Params, places: Places, rest: Params) -> Params:
    """The inverse of :func:`cut`: whole tensors, with the numbers of ``rest`` at other places.

    >>> import torch
    >>> places, rest = {"w": torch.tensor([True, False, True])}, {"w": torch.zeros(3)}
    >>> filled({"w": torch.tensor([1.0, 3.0])}, places, rest)
    {'w': tensor([1., 0., 3.])}
    """
    whole = dict(pieces)
    for name in places.keys() & pieces.keys():
        whole[name] = rest[name].masked_scatter(places[name], pieces[name])
    return whole
