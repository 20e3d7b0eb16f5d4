"""What models of transformers need to be trained as a stack of clients."""

from __future__ import annotations

import functools
import sys
from typing import Any

from srpfl.engine.stacks import is_stacked


def let_masks_be_stacked() -> None:
    """transformers leaves a mask out that masks nothing, unless it is being traced: a trace holds
    for all values. So does a stack of clients, but transformers does not know; here it is told.
    For any other tensor nothing changes."""
    masks = sys.modules.get("transformers.masking_utils")
    asked = getattr(masks, "is_tracing", None)
    if masks is None or asked is None or getattr(asked, "knows_stacks", False):
        return

    @functools.wraps(asked)
    def is_tracing(tensor: Any = None) -> bool:
        return is_stacked(tensor) or bool(asked(tensor))

    is_tracing.knows_stacks = True  # type: ignore[attr-defined]
    masks.is_tracing = is_tracing  # type: ignore[attr-defined]
