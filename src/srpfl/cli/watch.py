"""srpfl watch: the report of a run in progress, in a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def watch(
    folders: Annotated[list[Path], typer.Argument(help="folders of runs; they need not exist yet")],
    port: Annotated[int, typer.Option(help="port on this machine (0: any free one)")] = 8642,
    show: Annotated[bool, typer.Option("--open", help="open it in a browser")] = False,
) -> None:
    """Show runs in a browser in progress, simulated or deployed.

    The page is served to this machine alone. It follows the runs, stays when they end, and
    changes nothing in them.

    Example:

      srpfl watch runs/first
    """
    from srpfl.report.live import serve

    server = serve(folders, port)
    host, bound = server.server_address[:2]
    address = f"http://{host!s}:{bound}/"
    print(f"watching {', '.join(map(str, folders))} at {address} (Ctrl-C stops)", flush=True)
    if show:
        webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("stopped watching; the runs continue")
    finally:
        server.server_close()
