"""Jobs and answers as bytes between our own processes.

Tensors travel as arrays, each once: what many clients have in common is one tensor in the job and
stays one on the way. (PyTorch's own way opens a file for each tensor, and runs out of files.)
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
from torch import Tensor


class _Packer(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return _tensor, (obj.detach().cpu().contiguous().numpy(),)
        return NotImplemented


def packed(message: Any) -> bytes:
    buffer = io.BytesIO()
    _Packer(buffer, protocol=5).dump(message)
    return buffer.getvalue()


def opened(data: bytes) -> Any:
    return pickle.loads(data)


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy())
