"""A client's personal part on its own disk, in two phases.

kept.safetensors     what the client works with
pending.safetensors  what it trained last; becomes the kept one once the server says that the
                     answer counted, and goes otherwise

Each file appears by one rename, so it is there whole or not at all, and knows its round.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from srpfl.errors import RunFolderError
from srpfl.split import Params


class PersonalStore:
    """The part of one client in one experiment."""

    def __init__(self, root: Path, experiment: str, client: str) -> None:
        self.folder = root / _safe(experiment) / _safe(client)
        self.kept = self.folder / "kept.safetensors"
        self.pending = self.folder / "pending.safetensors"

    def load(self, initial: Params) -> Params:
        """The kept part, or the initial one; a damaged file is an error, never a fresh start."""
        if not self.kept.exists():
            return initial
        try:
            with safe_open(self.kept, framework="pt") as file:
                part = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise RunFolderError(
                f"{self.kept} is damaged ({error}): remove it to begin anew"
            ) from error
        if _form(part) != _form(initial):
            raise RunFolderError(
                f"{self.kept} belongs to another model: give the experiment another name"
            )
        return part

    def propose(self, part: Params, round: int) -> None:
        """Put down what was trained in a round, to be kept if it counts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f".pending.{os.getpid()}"
        content = {name: value.detach().cpu().contiguous() for name, value in part.items()}
        with draft.open("wb") as file:
            file.write(save(content, metadata={"round": str(round)}))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.pending)
        self._sync()

    def settle(self, counted: int) -> None:
        """Keep the pending part if it is from the round that counted last, else drop it."""
        if not self.pending.exists():
            return
        if _round(self.pending) == counted:
            self.pending.replace(self.kept)
        else:
            self.pending.unlink()
        self._sync()

    def _sync(self) -> None:
        """A rename is on disk only once the folder is."""
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _round(path: Path) -> int | None:
    try:
        with safe_open(path, framework="pt") as file:
            return int((file.metadata() or {})["round"])
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def _form(part: Params) -> dict[str, tuple[object, object]]:
    return {name: (value.shape, value.dtype) for name, value in part.items()}


def _safe(name: str) -> str:
    """A name as that of one folder, whatever is in it."""
    return quote(name, safe="").replace(".", "%2E")
