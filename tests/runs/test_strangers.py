"""A folder from a stranger: whatever its files say, with checksums that fit, reading it and going
on with it is a sentence or an answer; nothing outside it is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import srpfl
from runs.damage import ROUNDS, copy_of, play, read
from runs.test_damage import assert_sentence, shown
from srpfl.errors import RunFolderError, SrpflError
from srpfl.runs.doctor import examine, mend
from srpfl.runs.seal import seal

some = settings(
    max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None
)

ODD: list[Any] = [
    *(None, True, False, 0, 1, 2, 3, 7, -1, 10**6, 10**12, 2**63, -(10**30), 0.0, 0.5, -0.5, 1e300),
    *(
        "",
        "x",
        "../../x",
        "/x",
        "a\0b",
        "<script>",
        "\ud800",
        "1",
        "personal",
        "global",
        "accuracy",
    ),
    *([], [0], [1, 1], [-1], [10**9], [0.5] * 6, ["x"], [[]], [[1]], [None], [True]),
    *({}, {"x": 1}, {"1": 1}, {"kind": 5}, {"../x.safetensors": [0]}, {"000001.safetensors": [0]}),
]
FILES = ["config", "partition", "rounds", "evaluations", "older state", "newer state"]


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to everything inside a JSON value."""
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    return [way, *(each for key, item in inner for each in places(item, (*way, key)))]


def forged(value: Any, way: int, how: str, odd: Any) -> Any:
    """The value with one thing inside it replaced, left out or added."""
    ways = [each for each in places(value) if each]
    *path, last = ways[way % len(ways)]
    target = value
    for key in path:
        target = target[key]
    if how == "without":
        del target[last]
    elif how == "added" and isinstance(target, dict):
        target["added"] = odd
    elif how == "added":
        target.insert(last, odd)
    else:
        target[last] = odd
    return value


Change = Callable[[Any], Any]


def sealed(value: Any, before: str = "") -> str:
    text = json.dumps(value)
    return seal(text, before) if value and isinstance(value, dict) else text


def in_text(path: Path, change: Change) -> None:
    told = json.loads(path.read_text())
    told.pop("sum", None)
    path.write_text(sealed(change(told)), errors="surrogatepass")


def in_lines(path: Path, change: Change) -> None:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        del record["sum"]
    lines, before = [], ""
    for record in change(records):
        lines.append(sealed(record, before))
        before = lines[-1][-18:-2]
    path.write_text("".join(f"{line}\n" for line in lines), errors="surrogatepass")


def in_counts(path: Path, change: Change) -> None:
    from srpfl.runs.seal import digest

    text = json.dumps(change(json.loads(path.read_text())))
    path.write_text(text)

    def told(config: Any) -> Any:
        config["sums"]["partition.json"] = digest(text.encode())
        return config

    in_text(path.with_name("config.json"), told)


def forge(folder: Path, file: str, change: Change) -> None:
    states = sorted((folder / "checkpoints").glob("*/state.json"))
    if file == "config":
        in_text(folder / "config.json", change)
    elif file == "partition":
        in_counts(folder / "partition.json", change)
    elif file.endswith("state"):
        in_text(states[file.startswith("newer")], change)
    else:
        in_lines(folder / f"{file}.jsonl", change)


def others(folder: Path) -> list[str]:
    """All that is there beside the folder."""
    mine = {folder, *folder.rglob("*")}
    return sorted(str(path) for path in folder.parent.rglob("*") if path not in mine)


POLICIES = {
    "auto": srpfl.Auto(),
    "late": srpfl.FedBuff(k=2, sample=4),  # whose checkpoints have work in flight
    "oort": srpfl.Oort(sample=3),  # which remembers each client
}


@pytest.fixture(scope="module")
def runs(in_memory: Path) -> dict[str, Path]:
    """Runs whose policies remember something."""
    for name, policy in POLICIES.items():
        play(in_memory / name, participation=policy)
    return {name: in_memory / name for name in POLICIES}


forgeries = st.tuples(
    st.sampled_from(list(POLICIES)),
    st.sampled_from(FILES),
    st.integers(0, 10**6),
    st.sampled_from(["replaced", "replaced", "without", "added"]),
    st.sampled_from(ODD),
)


Forgery = tuple[str, str, int, str, Any]


def copied(runs: dict[str, Path], place: Path, forgery: Forgery) -> Path:
    place.mkdir(exist_ok=True)
    name, file, way, how, odd = forgery
    folder = copy_of(runs[name], place / "run")
    forge(folder, file, lambda value: forged(value, way, how, json.loads(json.dumps(odd))))
    return folder


def test_a_forgery_that_changes_nothing_is_the_run_itself(runs, tmp_path: Path) -> None:
    for name, run in runs.items():
        folder = copy_of(run, tmp_path / name)
        for file in FILES:
            forge(folder, file, lambda value: value)
        assert examine(folder).whole
        assert not read(folder)[1]


def beyond(value: Any) -> Any:
    """The same with numbers that nobody can calculate with."""
    if isinstance(value, dict):
        return {name: beyond(each) for name, each in value.items()}
    if isinstance(value, list):
        return [beyond(each) for each in value]
    return 1e300 if isinstance(value, float) else value


@pytest.mark.parametrize(("name", "change"), [("oort", lambda _: {"seen": []}), ("auto", beyond)])
def test_a_memory_that_is_not_the_policys_is_a_sentence(runs, name, change, tmp_path) -> None:
    folder = copy_of(runs[name], tmp_path / "run")
    for file in ("older state", "newer state"):
        forge(folder, file, lambda told: {**told, "memory": change(told["memory"])})
    with pytest.raises(RunFolderError, match="cannot go on with what it remembers in"):
        play(folder, resume=True, participation=POLICIES[name], rounds=ROUNDS + 1)


def check_reading(forgery: Forgery, runs: dict[str, Path], place: Path) -> None:
    folder = copied(runs, place, forgery)
    before = others(folder)
    examine(folder)
    try:
        run, said = read(folder)
        for sentence in said:
            assert_sentence(sentence)
        shown(run)
    except SrpflError as error:
        assert_sentence(str(error))
    try:
        mend(folder)
    except SrpflError as error:
        assert_sentence(str(error))
    assert others(folder) == before


def check_going_on(forgery: Forgery, runs: dict[str, Path], place: Path) -> None:
    folder = copied(runs, place, forgery)
    before = others(folder)
    try:
        play(folder, resume=True, participation=POLICIES[forgery[0]], rounds=ROUNDS + 2)
    except SrpflError as error:
        assert_sentence(str(error))
    assert others(folder) == before


@given(forgery=forgeries)
@some
def test_whoever_reads_it_gets_a_sentence_or_an_answer(forgery, runs, in_memory) -> None:
    check_reading(forgery, runs, in_memory / "read")


@pytest.mark.slow
@given(forgery=forgeries)
@some
def test_whoever_goes_on_with_it_gets_a_sentence_or_an_answer(forgery, runs, in_memory) -> None:
    check_going_on(forgery, runs, in_memory / "gone on with")


@pytest.mark.faults
@given(forgery=forgeries)
@settings(some, max_examples=100)
def test_reading_many_times(forgery, runs, in_memory, trial) -> None:
    check_reading(forgery, runs, in_memory / "read")


@pytest.mark.faults
@given(forgery=forgeries)
@settings(some, max_examples=50)
def test_going_on_many_times(forgery, runs, in_memory, trial) -> None:
    check_going_on(forgery, runs, in_memory / "gone on with")


def test_a_name_is_never_longer_than_a_picture_can_show(runs, tmp_path: Path) -> None:
    folder = copy_of(runs["auto"], tmp_path / "run")
    forge(folder, "config", lambda told: {**told, "name": "ab " * 20_000})
    assert len(srpfl.Run.load(folder).name) < 250
