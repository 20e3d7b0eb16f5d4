"""srpfl reproduce: the paper's figures."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Annotated, Any

import typer


def reproduce(
    figure: Annotated[
        str | None,
        typer.Argument(help="fig3 (full, fixed), fig4 (full, dynamic), fig5, fig6 (a fifth)"),
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help="data sets (default: the paper's four); repeatable")
    ] = None,
    methods: Annotated[str | None, typer.Option(help="trainings, such as fedrep,srpfl")] = None,
    seeds: Annotated[int, typer.Option(help="how many seeds")] = 1,
    rounds: Annotated[int, typer.Option(help="rounds per run")] = 150,
    clients: Annotated[
        int | None,
        typer.Option(help="clients (default: 100); few keep 500 images of CIFAR each"),
    ] = None,
    out: Annotated[Path, typer.Option(help="folder of the results")] = Path("results"),
    data_dir: Annotated[str | None, typer.Option(help="folder with the data")] = None,
    engine: Annotated[str, typer.Option(help="auto, loop, workers or vectorised")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    precision: Annotated[str, typer.Option(help="float32, tf32 or bfloat16")] = "float32",
    together: Annotated[int, typer.Option(help="runs of one algorithm to train as one cohort")] = 1,
    on: Annotated[str, typer.Option(help="where runs are played: turn, processes or ray")] = "turn",
    workers: Annotated[int | None, typer.Option(help="runs at a time, unless in turn")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="begin no new run after this long; call again to continue")
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="verify the results in this folder and rebuild them")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the table as JSON")] = False,
) -> None:
    """Reproduce the paper's figures: train what is missing, then write figure, table, numbers.

    Runs that are there are never trained again, and C = 0, 10, 100 come from the same runs.

    Examples:

      srpfl reproduce fig3 --dataset cifar10 --data-dir data --seeds 3 --together 6

      srpfl reproduce --check results/
    """
    from srpfl import reproduce as paper
    from srpfl.errors import ConfigError

    if check is not None:
        _check(check)
        return
    if figure is None:
        raise ConfigError("name a figure (fig3, fig4, fig5, fig6), or a folder to --check")
    if together < 1:
        raise ConfigError(f"at least one run is trained at a time, not {together}")
    started = time.perf_counter()
    panels = [
        paper.Panel(
            figure,
            name,
            methods=tuple(methods.split(",")) if methods else tuple(paper.TRAININGS),
            seeds=seeds,
            rounds=rounds,
            clients=clients,
        )
        for name in dataset or paper.DATASETS
    ]
    trained = _train(
        panels,
        out,
        on=on,
        workers=workers,
        together=together,
        deadline=None if minutes is None else started + 60 * minutes,
        data_dir=data_dir,
        engine=engine,
        device=device,
        precision=precision,
    )
    note = None
    if trained:
        note = {
            "command": _command(
                figure, dataset, methods, seeds, rounds, clients, precision, together
            ),
            "trained": trained,
            "device": _device(device),
            "seconds": round(time.perf_counter() - started, 1),
        }
    files = paper.write(out, figure, note)
    if as_json:
        print((out / figure / "table.json").read_text(), end="")
    else:
        print(f"trained {trained} runs; wrote {', '.join(files)} to {out / figure}")
        for name, ends in paper.diverged(out / figure).items():
            for run, text in ends.items():
                print(f"{name}/{run} diverged: {text}")


def _train(panels: list[Any], out: Path, **more: Any) -> int:
    from srpfl.reproduce.grid import train
    from srpfl.sweeps.live import live_table

    with live_table() as watch:
        return sum(train(panel, out, watch=watch, **more)[1] for panel in panels)


def _check(folder: Path) -> None:
    from srpfl.errors import RunFolderError
    from srpfl.reproduce import check
    from srpfl.studies import fedbalancer, shootout_table

    wrong = check(folder)
    if (folder / "shootout").is_dir():
        wrong += shootout_table.check(folder / "shootout")
        wrong += fedbalancer.check(folder / "shootout")
    if wrong:
        raise RunFolderError(f"{folder} is not as it should be: " + "; ".join(wrong))
    print(f"{folder}: records complete, tables and figures rebuilt")


def _command(
    figure: str,
    dataset: list[str] | None,
    methods: str | None,
    seeds: int,
    rounds: int,
    clients: int | None,
    precision: str,
    together: int,
) -> str:
    words = ["srpfl reproduce", figure, *(f"--dataset {name}" for name in dataset or [])]
    words += [f"--methods {methods}"] if methods else []
    words += [f"--seeds {seeds} --rounds {rounds}", *([f"--clients {clients}"] if clients else [])]
    words += [f"--precision {precision}", *([f"--together {together}"] if together > 1 else [])]
    return " ".join(words)


def _device(name: str) -> str:
    import torch

    from srpfl.engine import chosen_device

    device = chosen_device(name)
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{platform.machine()} CPU, torch {torch.__version__}"
