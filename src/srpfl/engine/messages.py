"""Jobs and answers between our own processes: tensors through shared memory, the rest by pipe.

What many clients have in common is one tensor in a job and stays one on the way. (PyTorch's own way
opens a file for each tensor, and runs out of files.)
"""

from __future__ import annotations

import io
import mmap
import multiprocessing as mp
import os
import pickle
import select
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srpfl.core.processes import ours_alone


class Gone(Exception):
    """The process at the other end has ended."""


class Channel:
    """One end of a line to another process. Both ends see the same memory."""

    def __init__(self, pipe: Connection, sends: Memory, receives: Memory) -> None:
        self.pipe, self.sends, self.receives = pipe, sends, receives

    def send(self, message: Any) -> None:
        text, arrays = parted(message)
        self.sends.write(arrays)
        sizes = [array.nbytes for array in arrays]
        packed = pickle.dumps((text, sizes))
        try:
            self.pipe.send_bytes(packed)
        except OSError as error:
            raise Gone from error

    def receive(self) -> Any:
        try:
            packed = self.pipe.recv_bytes()
        except (EOFError, OSError) as error:
            raise Gone from error
        text, sizes = pickle.loads(packed)
        return pickle.loads(text, buffers=self.receives.read(sizes))

    def wait_until_gone(self) -> None:
        """Return when the other end is closed, and not before; messages are left where they are."""
        hung_up = select.poll()
        hung_up.register(self.pipe.fileno(), 0)
        hung_up.poll()

    def close(self) -> None:
        self.pipe.close()
        self.sends.close()
        self.receives.close()


def parted(
    message: Any, packer: type[pickle.Pickler] | None = None
) -> tuple[bytes, list[memoryview]]:
    """A message as its text and the bytes of its tensors."""
    buffers: list[pickle.PickleBuffer] = []
    text = io.BytesIO()
    (packer or _Packer)(text, protocol=5, buffer_callback=buffers.append).dump(message)
    return text.getvalue(), [buffer.raw() for buffer in buffers]


def line() -> tuple[Channel, Channel]:
    """Both ends of a new line: ours, and the one for a process that is forked next."""
    ours, theirs = mp.Pipe()
    there, back = Memory(), Memory()
    near = ours_alone(Channel(ours, there, back))
    return near, Channel(theirs, back.again(), there.again())


class Memory:
    """A file without a name that grows as needed. A message is read before the next is written,
    because each is an answer to the last."""

    def __init__(self, file: int | None = None) -> None:
        self.file = os.memfd_create("srpfl") if file is None else file
        self.map: mmap.mmap | None = None

    def again(self) -> Memory:
        """The same memory, to be closed apart."""
        return Memory(os.dup(self.file))

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
        """Once or more often: Ctrl-C can come in between."""
        file, self.file = self.file, -1
        if file >= 0:
            os.close(file)

    def _view(self, size: int) -> NDArray[np.uint8]:
        if not size:  # so that word of a lack of memory gets through
            return np.empty(0, dtype=np.uint8)
        if self.map is None or len(self.map) < size:
            have = max(os.fstat(self.file).st_size, size)
            try:
                os.ftruncate(self.file, have)
                self.map = mmap.mmap(self.file, have)
            except OSError as error:
                raise MemoryError(f"{have:,} bytes to share with another process") from error
        return np.frombuffer(self.map, dtype=np.uint8)


class _Packer(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        return reduced(obj)


def reduced(obj: Any) -> Any:
    """How a tensor is pickled; anything else in the usual way."""
    if isinstance(obj, Tensor):
        return torch.from_numpy, (obj.detach().cpu().contiguous().numpy(),)
    return NotImplemented
