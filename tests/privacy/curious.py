"""A server that is curious: what it can make of one answer with all that it got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from srpfl.privacy.secure import Keys, _combined, _pair, _stream


def looks_random(values: np.ndarray) -> bool:
    """Whether bytes are as even as random ones: χ² within six deviations of its mean, 255."""
    counts = np.bincount(np.ascontiguousarray(values).view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    return bool(abs(((counts - expected) ** 2 / expected).sum() - 255) < 6 * np.sqrt(2 * 255))


def laid_bare(
    name: int,
    masked: Mapping[int, np.ndarray],
    keys: Mapping[int, Keys],
    revealed: Sequence[Mapping[int, bytes]],
    threshold: int,
) -> np.ndarray:
    """An answer that counted, without every mask of which the server has the secret once the sum
    is known: its own, and those that it shares with late ones."""
    left = masked[name].copy()
    for other in keys:
        secret = _combined([each[other] for each in revealed if other in each], threshold)
        if other == name:
            left -= _stream(secret, left.size)
        elif other not in masked:
            left += _pair(secret, keys[name].masks, other, name, left.size)
    return left
