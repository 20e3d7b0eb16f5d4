"""srpfl export: a run's records for other tools."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated

import typer


def export(
    runs: Annotated[
        list[Path], typer.Argument(help="folders of runs, or folders that hold several")
    ],
    to: Annotated[str, typer.Option(help="csv, parquet, tensorboard, mlflow or wandb")] = "csv",
    out: Annotated[Path, typer.Option(help="folder to write to")] = Path("export"),
    model: Annotated[
        int | None,
        typer.Option(help="write the trained model of this client, instead of tables"),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="run the code of others that a run's config.json names")
    ] = False,
    communication: Annotated[
        float | None,
        typer.Option(help="C of the times in csv and parquet (default: each run's own)"),
    ] = None,
) -> None:
    """Write runs as tables or for an experiment tracker, or a client's trained model.

    Tables are CSV or Parquet. A model is written as weights (safetensors) and as a program
    (torch.export) that needs neither srpfl nor your code.

    Examples:

      srpfl export runs/demo --to parquet --out tables

      srpfl export runs/demo --to tensorboard --out logs

      srpfl export runs/first --model 7 --out models
    """
    from srpfl.errors import unknown
    from srpfl.report import find_runs
    from srpfl.report.style import styles
    from srpfl.runs.export import FORMATS
    from srpfl.runs.export import export as write_tables
    from srpfl.runs.names import file_names
    from srpfl.runs.run import Run
    from srpfl.trackers import NAMES, replay, tracker

    if to not in (*FORMATS, *NAMES):
        raise unknown("format", to, (*FORMATS, *NAMES))
    if model is not None:
        print(f"{_write_model(find_runs(runs), model, out, trust=trust)}.safetensors and .pt2")
        return
    loaded = [Run.load(folder) for folder in find_runs(runs)]
    if to in FORMATS:
        names = file_names([look.label for look in styles(loaded)])
        for run, name in zip(loaded, names, strict=True):
            place = out / name if len(loaded) > 1 else out
            write_tables(run, place, format=to, communication=communication)
    else:
        keeps = tracker(to, out)
        for run in loaded:
            replay(run, keeps)
    count = "1 run" if len(loaded) == 1 else f"{len(loaded)} runs"
    print(f"{count}: {out}")


def _write_model(folders: list[Path], client: int, out: Path, *, trust: bool) -> Path:
    """A client's model with its transform, as weights and as a program."""
    import torch
    from safetensors.torch import save

    from srpfl.errors import ConfigError, RunFolderError
    from srpfl.options.config import Config
    from srpfl.options.experiment import experiment
    from srpfl.runs.files import write_bytes
    from srpfl.runs.run import Run

    if len(folders) != 1:
        raise ConfigError(f"a model is of one run, and there are {len(folders)} here: name one")
    run = Run.load(folders[0])
    made = experiment(
        Config.from_run(dict(run.config), f"{folders[0]}/config.json", {}, trust=trust)
    )
    model = made["model"]
    model = model if isinstance(model, torch.nn.Module) else model()
    module = run.module_of(client, model=model, transform=made["data"].transform)
    stem = out / f"client-{client}"
    state = {name: value.contiguous() for name, value in module.network.state_dict().items()}
    samples = made["data"].test(client).x
    two = torch.as_tensor(samples)[:2]
    rows = {0: torch.export.Dim("rows")}
    program = io.BytesIO()  # by itself PyTorch ends the process where a disk is full
    torch.export.save(torch.export.export(module, (two,), dynamic_shapes=(rows,)), program)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_bytes(stem.with_suffix(".safetensors"), save(state))
        write_bytes(stem.with_suffix(".pt2"), program.getvalue())
    except OSError as error:
        raise RunFolderError(f"cannot write to {out}: {error.strerror}") from error
    return stem
