"""Jobs and answers between our own processes: tensors through shared memory, the rest by pipe.

What many clients have in common is one tensor in a job and stays one on the way. (PyTorch's own way
opens a file for each tensor, and runs out of files.)
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Channel:
    """One end of a line to another process. Both ends see the same memory."""

    def __init__(self, pipe: Connection, sends: Memory, receives: Memory) -> None:
        self.pipe, self.sends, self.receives = pipe, sends, receives

    def send(self, message: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        text = io.BytesIO()
        _Packer(text, protocol=5, buffer_callback=buffers.append).dump(message)
        arrays = [buffer.raw() for buffer in buffers]
        self.sends.write(arrays)
        sizes = [array.nbytes for array in arrays]
        self.pipe.send_bytes(pickle.dumps((text.getvalue(), sizes)))

    def receive(self) -> Any:
        text, sizes = pickle.loads(self.pipe.recv_bytes())
        return pickle.loads(text, buffers=self.receives.read(sizes))

    def close(self) -> None:
        self.pipe.close()
        self.sends.close()
        self.receives.close()


class Memory:
    """A file without a name that grows as needed. A message is read before the next is written,
    because each is an answer to the last."""

    def __init__(self) -> None:
        self.file = os.memfd_create("srpfl")
        self.map: mmap.mmap | None = None

    def write(self, arrays: Sequence[memoryview]) -> None:
        view = self._view(sum(array.nbytes for array in arrays))
        start = 0
        for array in arrays:
            view[start : start + array.nbytes] = np.frombuffer(array, dtype=np.uint8)
            start += array.nbytes

    def read(self, sizes: Sequence[int]) -> list[NDArray[np.uint8]]:
        """Copies, so that a client's tensors live as long as they are used and no longer."""
        view = self._view(sum(sizes))
        ends = np.cumsum(sizes)
        return [
            view[end - size : end].copy() for size, end in zip(sizes, ends.tolist(), strict=True)
        ]

    def close(self) -> None:
        os.close(self.file)

    def _view(self, size: int) -> NDArray[np.uint8]:
        if self.map is None or len(self.map) < size:
            have = max(os.fstat(self.file).st_size, size, mmap.PAGESIZE)
            os.ftruncate(self.file, have)
            self.map = mmap.mmap(self.file, have)
        return np.frombuffer(self.map, dtype=np.uint8)


class _Packer(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return torch.from_numpy, (obj.detach().cpu().contiguous().numpy(),)
        return NotImplemented
