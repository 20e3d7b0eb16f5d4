"""Puts a headless Chromium into the virtual environment, where the machine has none.

It needs no root and no libraries of the system: it is the build that people run in AWS Lambda,
from the npm package @sparticuz/chromium (MIT), pinned by its checksum. `make test` calls this;
without a network it says so, and the tests that need a browser are skipped.
"""

from __future__ import annotations

import hashlib
import io
import platform
import sys
import tarfile
import urllib.request
from pathlib import Path

from browser import HOME, chromium

VERSION = "147.0.0"
URL = f"https://registry.npmjs.org/@sparticuz/chromium/-/chromium-{VERSION}.tgz"
SHA256 = "18fe5404ce845594cd7d592fc07f37a19514079ba4d9c27192ad8b908743f16b"
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


def get(folder: Path) -> None:
    import brotli

    with urllib.request.urlopen(URL, timeout=120) as answer:
        package = answer.read()
    if hashlib.sha256(package).hexdigest() != SHA256:
        raise ValueError(f"{URL} is not the file that it was")
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(package)) as files:
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


if __name__ == "__main__":
    if chromium() is None:
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            sys.exit("there is no Chromium here, and none to get for this kind of machine")
        try:
            get(HOME)
        except (OSError, ValueError) as error:
            sys.exit(f"cannot get a Chromium ({error}): the tests that need one are skipped")
