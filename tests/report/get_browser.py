"""Puts a headless Chromium into the virtual environment, where the machine has none, and axe-core.

The browser needs no root and no libraries of the system: it is the build that people run in AWS
Lambda, from the npm package @sparticuz/chromium (MIT). axe-core (MPL-2.0) finds what keeps people
from using a page. Both are pinned by their checksums. `make test` calls this; without a network it
says so, and the tests that need them are skipped.
"""

from __future__ import annotations

import hashlib
import io
import platform
import sys
import tarfile
import time
import urllib.request
from pathlib import Path

from browser import AXE, HOME, chromium

NPM = "https://registry.npmjs.org"
CHROMIUM = (
    f"{NPM}/@sparticuz/chromium/-/chromium-147.0.0.tgz",
    "18fe5404ce845594cd7d592fc07f37a19514079ba4d9c27192ad8b908743f16b",
)
AXE_CORE = (
    f"{NPM}/axe-core/-/axe-core-4.10.3.tgz",
    "0f2b4d7dcdf7d1219df8d1959ad68e565f51d14c3f0d88bb71cd59abeb956292",
)
RUN = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="$here/lib" FONTCONFIG_PATH="$here"
exec "$here/chromium" "$@"
"""
FONTS = """<?xml version="1.0"?>
<fontconfig>
  <dir prefix="relative">fonts</dir>
  <cachedir prefix="relative">cache</cachedir>
</fontconfig>
"""


def fetched(url: str, tries: int = 3) -> bytes:
    """A file of the registry; a line may fail once or twice."""
    try:
        with urllib.request.urlopen(url, timeout=120) as answer:
            return bytes(answer.read())
    except OSError:
        if tries == 1:
            raise
        time.sleep(2)
        return fetched(url, tries - 1)


def package(url: str, sha256: str) -> tarfile.TarFile:
    content = fetched(url)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{url} is not the file that it was")
    return tarfile.open(fileobj=io.BytesIO(content))


def get_axe(file: Path) -> None:
    with package(*AXE_CORE) as files:
        member = files.extractfile("package/axe.min.js")
        assert member is not None
        file.write_bytes(member.read())


def get(folder: Path) -> None:
    import brotli

    folder.mkdir(parents=True, exist_ok=True)
    with package(*CHROMIUM) as files:
        for name in ("chromium", "al2023.tar", "fonts.tar"):
            member = files.extractfile(f"package/bin/{name}.br")
            assert member is not None
            content = brotli.decompress(member.read())
            if name == "chromium":
                (folder / name).write_bytes(content)
                (folder / name).chmod(0o755)
            else:
                with tarfile.open(fileobj=io.BytesIO(content)) as inner:
                    inner.extractall(folder, filter="data")
    (folder / "fonts.conf").write_text(FONTS)
    run = folder / "run"  # written last: what was interrupted is done again
    run.write_text(RUN)
    run.chmod(0o755)


def wanting() -> str | None:
    """Get what is not there; say what could not be had."""
    try:
        if not AXE.exists():
            get_axe(AXE)
        if chromium() is None:
            if (sys.platform, platform.machine()) != ("linux", "x86_64"):
                return "there is no Chromium here, and none to get for this kind of machine"
            get(HOME)
    except (OSError, ValueError) as error:
        return f"cannot get what the tests of the report need ({error}): they are skipped"
    return None


if __name__ == "__main__":
    sys.exit(wanting())
