"""What PyTorch does for a whole process: its threads, its warnings, its compiler."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from srpfl.errors import SrpflWarning

SLOW = r"There is a performance drop because .* the batching rule for aten::_?(\w+)"


@contextmanager
def one_thread() -> Iterator[None]:
    """Small batches lose more by handing work to a second thread than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Recurrent layers warn on a GPU that their weights do not lie side by side: they are given
    from outside, and each client's own. Of slow operations we have told already."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single")
        warnings.filterwarnings("ignore", message=SLOW)
        yield


@contextmanager
def telling_slow_operations() -> Iterator[None]:
    """Name the operations that PyTorch computes client by client in a stack, once and without its
    request to write to its makers."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield
    found = dict.fromkeys(re.findall(SLOW, "\n".join(str(each.message) for each in said)))
    for each in said:
        if not re.match(SLOW, str(each.message)):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if found:
        warnings.warn(
            f"PyTorch computes {', '.join(found)} client by client, also in a stack of clients: "
            "engine='loop' or 'workers' may be as fast",
            SrpflWarning,
            stacklevel=2,
        )


@contextmanager
def uncompiled() -> Iterator[None]:
    """What a model has compiled with ``torch.compile`` runs as it was written: a stack of clients
    cannot go through compiled code, nor can a trace."""
    if "torch._dynamo" not in sys.modules:  # then nothing is compiled, and to load it takes seconds
        yield
        return
    config = torch._dynamo.config
    with torch.compiler.set_stance("force_eager"), config.patch(error_on_nested_fx_trace=False):
        yield
