"""srpfl shootout: policies against stragglers, under one clock."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

LOCAL = "digits-fixed, digits-dynamic, digits-pareto, digits-fedavg-ft and digits-sampled"
MORE = (
    "digits-phones (with --traces), har, femnist and femnist-sampled (with --data-dir), "
    "cifar10 and cifar10-50 (and a GPU)"
)


def shootout(
    settings: Annotated[
        list[str] | None,
        typer.Argument(help=f"{LOCAL} by default; {MORE}"),
    ] = None,
    seeds: Annotated[int, typer.Option(help="how many seeds")] = 3,
    out: Annotated[Path, typer.Option(help="folder of the results")] = Path("results/shootout"),
    traces: Annotated[
        Path | None, typer.Option(help="folder with phones' traces, for digits-phones")
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="folder with the data")] = None,
    runs: Annotated[
        Path | None, typer.Option(help="also keep the runs' folders there, for srpfl report")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    minutes: Annotated[
        float | None, typer.Option(help="begin no new run after this long; call again to continue")
    ] = None,
    policies: Annotated[
        str | None, typer.Option(help="only these, with commas between them")
    ] = None,
    note: Annotated[
        str | None, typer.Option(help="kept with each run: which code played it")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the tables as JSON")] = False,
) -> None:
    """Compare policies against stragglers: play what is missing, then write tables and a picture.

    Examples:

      srpfl shootout digits-fixed --seeds 3

      srpfl shootout cifar10-50 --data-dir data --device cuda   (needs a GPU)
    """
    import json

    from srpfl.studies import shootout as played
    from srpfl.studies import shootout_table as table

    names = settings or [name for name in played.SETTINGS if name in LOCAL]
    overrides = {"device": device, **({"data_dir": data_dir} if data_dir else {})}
    count = 0
    for line in played.study(
        names,
        out,
        seeds=range(seeds),
        overrides=overrides,
        traces=traces,
        runs=runs,
        policies=policies.split(",") if policies else (),
        note=note,
        **({} if minutes is None else {"minutes": minutes}),
    ):
        count += 1
        if not as_json:
            end = "diverged" if "diverged" in line else f"{100 * line['final']:.1f} %"
            print(
                f"{line['setting']}: {line['policy']}, seed {line['seed']}, C = {line['C']:g}: "
                f"{end}",
                flush=True,
            )
    table.write(out)
    if as_json:
        print(json.dumps(table.verdict(out), indent=1))
    else:
        print(f"played {count} runs; wrote {table.PAGE} and {table.PICTURE} to {out}")
