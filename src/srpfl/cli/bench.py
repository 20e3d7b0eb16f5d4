"""`srpfl bench`: how much faster local training is here than as people write it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def bench(
    setting: Annotated[
        list[str] | None,
        typer.Option(help="What to measure: see --list; all by default. May be repeated."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often, in turns.")] = 5,
    engine: Annotated[str, typer.Option(help="Our engine.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Also write the numbers to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Only say what can be measured.")] = False,
) -> None:
    """Time one round of local work against a plain loop: DataLoader, a model copy per client.

    The two take turns, their losses are matched first, and start-up is shown apart.

    Examples:

      srpfl bench --list

      srpfl bench --setting mlp --setting lenet
    """
    from rich.console import Console
    from rich.table import Table

    from srpfl.bench import SETTINGS, compare
    from srpfl.errors import unknown

    if listed:
        for name, case in SETTINGS.items():
            print(f"{name:16}{case.about}")
        return
    names = setting or list(SETTINGS)
    for name in names:
        if name not in SETTINGS:
            raise unknown("setting", name, SETTINGS)
    console = Console(stderr=True)
    found = []
    with console.status("measuring") as status:
        for name in names:
            found.append(
                compare(name, SETTINGS[name], repeats=repeats, engine=engine, watch=status.update)
            )
    rows = [{**asdict(each), "ratios": each.ratios, "ratio": each.ratio} for each in found]
    if out is not None:
        out.write_text(json.dumps(rows, indent=1) + "\n")
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("setting", "ours, s", "plain, s", "times faster", "spread")
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for each in found:
        table.add_row(
            each.setting,
            f"{sorted(each.ours)[len(each.ours) // 2]:.3f}",
            f"{sorted(each.plain)[len(each.plain) // 2]:.3f}",
            f"{each.ratio:.1f}",
            f"{each.ratios[0]:.1f} to {each.ratios[-1]:.1f}",
        )
    out_console = Console(highlight=False)
    out_console.print(table)
    for each in found:
        out_console.print(
            f"{each.setting}: {SETTINGS[each.setting].about}; start-up {each.start_up:.1f} s, "
            f"plain with {each.threads} threads, losses {each.losses[0]:.3f} and "
            f"{each.losses[1]:.3f}"
        )
