"""A client's personal part on its own disk, in two phases.

kept.safetensors     what the client works with
pending.safetensors  what it trained last; becomes the kept one once the server says that the
                     answer counted, and goes otherwise
run                  the identity of the run that they are of: another run of the same name does not
                     get them unless it says that it takes them over

Each file appears by one rename, so it is there whole or not at all, and knows its round. Nobody
but the user of the app can read them.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from srpfl.core.split import Params
from srpfl.errors import RunFolderError


class PersonalStore:
    """The part of one client in one experiment."""

    def __init__(
        self, root: Path, experiment: str, client: str, *, run: str = "", inherit: bool = False
    ) -> None:
        self.root, self.experiment = root, experiment
        self.folder = root / _safe(experiment) / _safe(client)
        self.kept = self.folder / "kept.safetensors"
        self.pending = self.folder / "pending.safetensors"
        self.owner = self.folder / "run"
        self.run, self.inherit = run, inherit

    def check_owner(self) -> None:
        """Refuse to serve another run than the one whose parts are here."""
        try:
            owner = self.owner.read_text().strip()
        except FileNotFoundError:
            return
        if owner != self.run and not self.inherit:
            raise RunFolderError(
                f"the parts of '{self.experiment}' here belong to another run ({owner[:8]}) than "
                f"this one ({self.run[:8]}): give the experiment another name, or say inherit=True "
                "to take them over"
            )

    def load(self, initial: Params) -> Params:
        """The kept part, or the initial one; a damaged file is an error, never a fresh start."""
        if not self.kept.exists():
            return initial
        try:
            with safe_open(self.kept, framework="pt") as file:
                part = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise RunFolderError(
                f"{self.kept} is damaged ({error}): remove it to start afresh"
            ) from error
        if _form(part) != _form(initial):
            raise RunFolderError(
                f"{self.kept} belongs to another model: give the experiment another name"
            )
        return part

    def propose(self, part: Params, round: int) -> None:
        """Put down what was trained in a round, to be kept if it counts."""
        self._make_folder()
        self._claim()
        content = {name: value.detach().cpu().contiguous() for name, value in part.items()}
        self._write(self.pending, save(content, metadata={"round": str(round)}))

    def settle(self, counted: int) -> None:
        """Keep the pending part if it is from the round that counted last, else drop it."""
        if not self.pending.exists():
            return
        if _round(self.pending) == counted:
            self.pending.replace(self.kept)
        else:
            self.pending.unlink()
        self._sync()

    def _claim(self) -> None:
        """From now on these parts are of this run."""
        self.check_owner()
        if not self.owner.exists() or self.owner.read_text().strip() != self.run:
            self._write(self.owner, f"{self.run}\n".encode())

    def _write(self, path: Path, content: bytes) -> None:
        draft = self.folder / f".{path.name}.{os.getpid()}"
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        self._sync()

    def _make_folder(self) -> None:
        for folder in (self.root, self.folder.parent, self.folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.chmod(0o700)  # also if it is older, or the umask is odd

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
