"""Try every fault that a deployment should outlast, and write the table: part of make faults

    python tests/flower/deploy_faults.py [--only WORD ...] [--rest]

Each fault is a test of its own with a limit on its time. Those with real processes start a
SuperLink and SuperNodes on this machine and end them again. Results are kept one by one in
results/deployment-faults.json, so that a part can be tried again, and what was cut short goes on
with --rest: faults that held at this very commit are left out. docs/reliability.md has them as a
table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from srpfl.runs.files import write_text

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results" / "deployment-faults.json"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- deployments -->\n", "<!-- end of deployments -->\n"
LIMIT = 900  # seconds for one fault

PROCESSES, FAKE = "real processes", "in-process grid"
# What happens, how it is tried, the test, and what "outlasted" means: the test asserts it.
FAULTS = {
    "a slow node": (
        PROCESSES,
        "test_processes.py::test_srpfl_goes_on_without_the_slow",
        "equals the simulator; its late answer is dropped, its head stays the old one",
    ),
    "a node stopped at its work (SIGSTOP)": (
        PROCESSES,
        "test_processes.py::test_a_stopped_node_is_done_without",
        "the run ends without it; its head stays the old one",
    ),
    "kill -9 of a node at work": (
        PROCESSES,
        "test_processes.py::test_a_killed_node_is_done_without_and_comes_back_with_its_head",
        "equals the simulator; it comes back with its head",
    ),
    "kill -9 of the server app, then of the SuperLink, beside a node that sends NaN": (
        PROCESSES,
        "test_processes.py::test_a_killed_server_and_superlink_go_on_and_the_bad_is_refused",
        "equals the simulator; no round is counted twice",
    ),
    "an answer lost (SuperLink answers 500 once), one uploaded by half, and a hostile node": (
        PROCESSES,
        "test_faulty_line.py",
        "equals the simulator; who lost an answer takes part again; the server stays up",
    ),
    "a late node under masks (`secure`)": (
        PROCESSES,
        "test_processes.py::test_masked_answers_add_up_without_the_slow",
        "equals the simulator; its masks are taken off",
    ),
    "a late node under masks with noise (`secure:CLIP,NOISE`)": (
        PROCESSES,
        "test_processes.py::test_masked_answers_with_noise_add_up_without_the_slow",
        "equals the simulator with the same noise",
    ),
    "nodes with another version or another model": (
        PROCESSES,
        "test_mismatch.py",
        "refused with the same sentence in both logs; another patch takes part",
    ),
    "nodes without a registered key": (
        PROCESSES,
        "test_processes.py::test_with_tls_and_authentication_an_unregistered_node_gets_no_work",
        "turned away",
    ),
    "an outsider with the CA certificate, and an unsigned app": (
        PROCESSES,
        "test_namespaces.py",
        "achieves nothing; nodes refuse the app",
    ),
    **{
        f"{how} of `srpfl deploy local`": (
            PROCESSES,
            f"test_processes.py::test_however_the_command_ends_nothing_is_left_behind[{how}]",
            "no process and no folder left behind",
        )
        for how in ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL")
    },
    "the server killed at any of fifteen points, and started again": (
        FAKE,
        "test_resume.py::test_killed_anywhere_and_started_again_is_as_if_nothing_had_happened",
        "equals a run that was never killed",
    ),
    "a damaged checkpoint of the server": (
        FAKE,
        "test_resume.py::test_a_damaged_checkpoint_is_played_again_from_the_one_before",
        "it says so and plays the round again; heads that had heard of it are a round ahead",
    ),
    "bad answers of many kinds": (
        FAKE,
        "test_refusals.py",
        "refused, named, and the round continues",
    ),
    "an answer of very many tiny objects": (
        FAKE,
        "test_parcels.py::test_an_answer_of_many_tiny_objects_is_refused_without_a_call_for_each",
        "refused unread",
    ),
    "a node that fails at once, again and again, while FedBuff waits for others": (
        FAKE,
        "test_keeping.py::test_a_node_that_fails_at_once_is_not_asked_all_the_time",
        "asked once in a round; the round waits for the others",
    ),
    "all nodes but one leave a FedBuff round, and come back": (
        FAKE,
        "test_keeping.py::test_a_buffer_waits_for_its_answers_while_nobody_is_at_work",
        "the round waits for them, as in the simulator",
    ),
    "1,000 random records in 20 rounds": (
        FAKE,
        "test_hostile.py::test_a_thousand_random_records_change_nothing",
        "equals the run without that node; memory bounded",
    ),
    "1,000 replies damaged byte by byte": (
        FAKE,
        "test_parcels.py::test_a_thousand_damaged_replies_raise_nothing",
        "nothing raises",
    ),
    "a node that claims 4.6e18 test samples": (
        FAKE,
        "test_hostile.py::test_a_node_cannot_claim_more_test_samples_than_it_joined_with",
        "not believed",
    ),
    "a node that claims 2^40 training samples, where answers weigh by them": (
        FAKE,
        "test_hostile.py::test_a_node_that_joins_with_a_huge_training_set_is_weighed_down",
        "weighs as much as `outweigh` allows",
    ),
    "a node that joins and then keeps silent": (
        FAKE,
        "test_lost.py::test_a_node_that_keeps_silent_costs_its_budget_once",
        "waited for once, a minute beyond its budget",
    ),
    "callers of the gateway that do not take their answers": (
        FAKE,
        "test_gateway.py::test_answers_that_are_not_taken_cannot_fill_the_memory_either",
        "memory bounded; others are answered",
    ),
    "a node that writes to another one, or answers in its name": (
        FAKE,
        "test_gateway.py::test_a_node_can_only_answer_and_in_its_own_name",
        "turned away at the gateway",
    ),
    "a node that announces the server's objects as something else": (
        FAKE,
        "test_gateway.py::test_what_the_server_sent_cannot_be_announced_as_something_else",
        "turned away at the gateway",
    ),
    "a SuperLink that fails for a while (500)": (
        FAKE,
        "test_lost.py::test_a_superlink_that_fails_for_a_while_is_asked_again",
        "the server asks again and computes the same",
    ),
    "a node that leads a secure sum astray": (
        FAKE,
        "test_masked.py::test_a_hostile_member_raises_nothing",
        "the run ends; a lie inside a masked answer cannot be seen",
    ),
    "a late member of a secure sum that sealed shares of another key": (
        FAKE,
        "../privacy/test_secure.py::test_a_late_one_that_sealed_shares_of_another_key_is_found_out",
        "found out; the round is played again",
    ),
    "a node that spoils each round for which it alone is drawn": (
        FAKE,
        "test_refusals.py::test_who_spoils_each_round_for_which_it_is_drawn_does_not_end_the_run",
        "others are asked",
    ),
    "names with newlines and escape codes": (
        FAKE,
        "test_hostile.py::test_a_name_with_escape_codes_is_shown_harmless",
        "shown harmless in the log",
    ),
    "two servers with one experiment name": (
        FAKE,
        "test_personal.py::test_a_second_run_of_the_same_name_is_turned_away_with_a_sentence",
        "the second is turned away, the first continues",
    ),
    "another key that claims a client's name": (
        FAKE,
        "test_hostile.py::test_with_keys_a_name_belongs_to_its_node",
        "refused",
    ),
    "a key that claims one name after another": (
        FAKE,
        "test_hostile.py::test_nor_can_it_take_them_one_after_another",
        "refused; the names' owners take part",
    ),
    "a full disk on a node": (
        FAKE,
        "test_personal.py::test_a_full_disk_costs_a_node_its_answer_and_nothing_else",
        "its answer is missing, its head stays the old one, the run continues",
    ),
    "a damaged head on a node": (
        FAKE,
        "test_personal.py::test_a_damaged_part_is_an_error_and_not_a_fresh_start",
        "an error, never a fresh start",
    ),
}
HEAD = """| what happens | tried with | held? | then | seconds |
|---|---|---|---|---|
"""


def tried(name: str) -> dict[str, object]:
    test, at = FAULTS[name][1], commit()
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", f"tests/flower/{test}"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        last = done.stdout.strip().splitlines()[-1:]
        skipped = done.returncode == 0 and "passed" not in "".join(last)
        held = "not tried here" if skipped else "yes" if done.returncode == 0 else "NO"
        if held == "NO":
            print(done.stdout[-4000:], done.stderr[-1000:], done.returncode, flush=True)
    except subprocess.TimeoutExpired:
        held = f"NO (more than {LIMIT} s)"
    return {"held": held, "seconds": round(time.monotonic() - began), "commit": at}


def commit() -> str:
    """The state of the code; nothing outside of a repository."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip()


def kept() -> dict[str, dict[str, object]]:
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def table(results: dict[str, dict[str, object]]) -> str:
    rows = []
    for name, (kind, _, then) in FAULTS.items():
        found = results.get(name, {"held": "not tried yet", "seconds": ""})
        rows.append(f"| {name} | {kind} | {found['held']} | {then} | {found['seconds']} |")
    tried_at = sorted(
        {str(results[n]["commit"]) for n in FAULTS if results.get(n, {}).get("commit")}
    )
    said = f"\nTried at commit {', '.join(f'`{at}`' for at in tried_at)}.\n" if tried_at else ""
    return HEAD + "\n".join(rows) + "\n" + said


def write(results: dict[str, dict[str, object]]) -> None:
    """The table, in its place on the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    write_text(PAGE, before + BEGIN + table(results) + END + rest.partition(END)[2])


def chosen(only: Sequence[str], rest: bool) -> list[str]:
    """The faults to try: those with one of the words in their names, and, of these, those that
    have not held yet at this commit."""
    results, now = kept(), commit()
    done = {name for name, r in results.items() if r["held"] == "yes" and r["commit"] == now}
    return [
        name
        for name in FAULTS
        if (not only or any(word in name for word in only)) and not (rest and name in done)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="*", default=[], help="faults whose name has one of these words"
    )
    parser.add_argument("--rest", action="store_true", help="not those that held at this commit")
    given = parser.parse_args()
    names = chosen(given.only, given.rest)
    for place, name in enumerate(names, 1):
        print(f"{place} of {len(names)}: {name} ...", flush=True)
        found = tried(name)
        print(f"   {found['held']} ({found['seconds']} s)", flush=True)
        results = {**kept(), name: found}  # others may be tried beside it
        write_text(KEPT, json.dumps(results, indent=1) + "\n")
        write(results)
    results = kept()
    held = [str(results.get(name, {"held": "not tried yet"})["held"]) for name in FAULTS]
    counts = ", ".join(f"{said}: {count}" for said, count in Counter(held).items())
    print(f"{len(FAULTS)} faults; {counts}")
    raise SystemExit(any(said.startswith("NO") for said in held))


if __name__ == "__main__":
    main()
