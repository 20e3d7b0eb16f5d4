"""Is this checkout as fast as another one? python benchmarks/against.py OTHER/src [--json FILE]

Both play the same pieces in fresh processes, in turn, each first as often as the other. Compared is
the processor time in user mode of each pair, because it hardly depends on what else a machine does;
the table shows the median ratio and the middle half of the ratios. What the demo does on top of its
two runs (verdict, pictures) has grown, so it is measured apart from them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1] / "src"
MOST = 1.05  # times as long

COMMAND = """
import sys
from srpfl.cli import main
def command(*words):
    sys.argv = ["srpfl", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
"""
SIMULATE = """
import srpfl, torch
torch.set_num_threads(1)
def play(rounds, **where):
    srpfl.simulate(
        data=srpfl.data.load("digits", clients=50, partition=srpfl.data.Shards(3), seed=0),
        model=srpfl.models.MLP(64, (64, 32), classes=10), rounds=rounds, evaluate_every=0, seed=0,
        algorithm=srpfl.FedRep(head_epochs=10, body_epochs=1), **where)
play(2)
"""
BENCH = """
import srpfl, torch
from srpfl.bench.settings import SETTINGS
torch.set_num_threads(1)
case = SETTINGS["{name}"]
data, model = case.data(), case.model()
def play(rounds):
    srpfl.simulate(data=data, model=model, algorithm=case.algorithm, rounds=rounds,
        evaluate_every=0, engine="vectorised", seed=0)
play(1)
"""
USED = "resource.getrusage(resource.RUSAGE_SELF).ru_utime"
# Garbage is collected before each part, so that none pays for what lay there before it.
BEGIN = f"import gc, resource\ngc.collect()\nbegan = {USED}\n"
# Rounds are measured without the start of a run: less what a run of one round takes.
ONCE = f"once = {USED} - began\ngc.collect()\nbegan = {USED} + once\n"
END = f"import resource\nprint({USED} - began)\n"
WHOLE = "began = 0.0\n"  # with the start of Python


def rounds(count: int) -> str:
    return f"{BEGIN}play(1)\n{ONCE}play({1 + count})\n"


RUN = 'command("run", "--data", "digits", "--quiet", "--method", "{}", "--rounds", "{}", "--out", '
RUNS = "".join(
    RUN.format(method, 80) + f'FOLDER + "/{method}")\n' for method in ("fedrep", "srpfl")
)
DEMO = 'command("demo", "--rounds", "10", "--out", FOLDER)\n'  # the second time reads its runs
KEPT = ('play(1, out=FOLDER + "/one")\n', 'play(61, out=FOLDER + "/run")\n')
PIECES = {
    "start-up and one round": WHOLE + COMMAND + RUN.format("fedrep", 1) + 'FOLDER + "/run")\n',
    "the demo's two runs, with start-up": WHOLE + COMMAND + RUNS,
    "verdict and pictures of the demo": COMMAND + DEMO + BEGIN + DEMO,
    "60 rounds of 50 clients with checkpoints": SIMULATE + BEGIN + KEPT[0] + ONCE + KEPT[1],
    "60 rounds of 50 clients without a folder": SIMULATE + rounds(60),
    "200 rounds of the benchmark's fedavg": BENCH.format(name="light") + rounds(200),
    "10 rounds of the benchmark's fedrep": BENCH.format(name="mlp-short") + rounds(10),
}  # fmt: skip
MORE = {"verdict and pictures of the demo"}  # no bound: there are more of them now


def seconds(source: Path, piece: str) -> float:
    """Processor time of a piece with the package in that folder."""
    told = {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", f"FOLDER = {folder!r}\n{PIECES[piece]}{END}"],
            env={**os.environ, **told},
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
    if done.returncode:
        raise SystemExit(f"{piece} failed with {source}:\n{done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])


def measured(piece: str, other: Path, pairs: int) -> dict[str, object]:
    ours, theirs = list[float](), list[float]()
    for pair in range(pairs):
        for mine in (True, False) if pair % 2 else (False, True):
            (ours if mine else theirs).append(seconds(HERE if mine else other, piece))
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    row = {
        "piece": piece,
        "pairs": pairs,
        "ours_s": round(statistics.median(ours), 3),
        "theirs_s": round(statistics.median(theirs), 3),
        "ratio": round(middle, 3),
        "middle_half": [round(low, 3), round(high, 3)],
        "holds": None if piece in MORE else middle <= MOST,
    }
    print(f"{piece:42} {row['ours_s']:7} {row['theirs_s']:7}  {middle:.3f} ({low:.3f}-{high:.3f})")
    return row


def commit(source: Path) -> str:
    """Which state of the code this is."""
    told = ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(told, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, help="the folder src of another checkout")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--piece", action="append", choices=PIECES, help="only this one")
    parser.add_argument("--json", type=Path, metavar="FILE")
    told = parser.parse_args()
    if not (told.other / "srpfl").is_dir():
        parser.error(f"{told.other} has no folder srpfl")
    other = told.other.resolve()
    print(f"{'':42} {'ours':>7} {'theirs':>7}  ratio, middle half")
    rows = [measured(piece, other, told.pairs) for piece in told.piece or PIECES]
    result = {"ours": commit(HERE), "theirs": commit(other), "most": MOST, "rows": rows}
    if told.json:
        told.json.write_text(json.dumps(result, indent=2) + "\n")
    raise SystemExit(any(row["holds"] is False for row in rows))


if __name__ == "__main__":
    main()
