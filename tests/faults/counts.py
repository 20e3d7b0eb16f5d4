"""How many faults ``make faults`` tries, by kind: the table of docs/reliability.md.

python tests/faults/counts.py            prints it
python tests/faults/counts.py --write    puts it into the page
"""

from __future__ import annotations

import contextlib
import io
import math
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- counts -->\n", "<!-- end of counts -->\n"
KINDS = {
    "test_a_killed_run_goes_on": "runs killed or interrupted (six ways), then resumed",
    "test_a_killed_worker_is_replaced": "worker processes killed",
    "test_ctrl_c_twice_ends_the_command_with_a_sentence": "commands interrupted twice",
    "test_after_a_loss_of_power_a_run_goes_on_exactly": "losses of power, then resumed",
    "test_without_waiting_for_the_disk_a_run_goes_on_exactly_or_says_why_not": (
        "losses of power with `--no-sync`"
    ),
    "test_killed_at_any_file_operation_a_run_goes_on_exactly": "deaths at a file operation",
    "test_readers_many_times": "damaged folders read, compared, exported and mended",
    "test_older_folders_many_times": "damaged folders of older versions read",
    "test_resuming_many_times_after_two_damages": "folders damaged twice, then resumed",
    "test_reading_many_times": "forged folders read",
    "test_going_on_many_times": "forged folders resumed",
    "test_any_value_of_an_option": "odd values of options",
}


class Collected:
    def __init__(self) -> None:
        self.found: Counter[str] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if isinstance(item, pytest.Function):
                told = getattr(item.obj, "_hypothesis_internal_use_settings", None)
                self.found[item.originalname] += told.max_examples if told else 1


def counts(trials: int = 20) -> dict[str, int]:
    collected = Collected()
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", "-m", "faults"]
    places = [str(ROOT / "tests" / name) for name in ("faults", "runs")]
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*arguments, "--trials", str(trials), *places], plugins=[collected])
    found = collected.found
    sys.path.insert(0, str(ROOT / "tests"))
    import tiny
    from faults.test_options import EACH, NAMES
    from faults.test_power import CASES, LOSSES, TIMES
    from runs.test_crash import CHOICES, TRIALS, Disk
    from srpfl.runs import folder as folders

    folders.FIRST_WAIT = math.inf  # a slow machine would wait for the disk on the way
    disk = Disk()
    with disk.watched(), tempfile.TemporaryDirectory() as folder:
        tiny.simulate(out=Path(folder) / "run", **CHOICES)
    at_files = "test_killed_at_any_file_operation_a_run_goes_on_exactly"
    each_way = found[at_files] // trials  # engines, and before, halfway or after
    found[at_files] = each_way * disk.count * trials // TRIALS
    found["test_after_a_loss_of_power_a_run_goes_on_exactly"] *= CASES * LOSSES * TIMES
    found["test_without_waiting_for_the_disk_a_run_goes_on_exactly_or_says_why_not"] *= (
        CASES * LOSSES
    )
    found["test_any_value_of_an_option"] *= EACH * len(NAMES)
    return {words: found[name] for name, words in KINDS.items()}


def table() -> str:
    rows = [f"| {kind} | {count:,} |" for kind, count in counts().items()]
    return "\n".join(["| what is tried | times |", "|---|---:|", *rows]) + "\n"


def page_with(table: str) -> str:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table}{END}{after}"


if __name__ == "__main__":
    found = table()
    print(found, end="")
    if "--write" in sys.argv:
        PAGE.write_text(page_with(found))
