"""A client's personal part: kept when the answer counted, and only then, over any restart."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import srpfl
import tiny
from flower.federation import Federation, during
from srpfl.errors import RunFolderError
from srpfl.flower.store import PersonalStore
from srpfl.flower.transport import TooFewClientsError

ONE, TWO = {"head": torch.ones(2)}, {"head": torch.full((2,), 2.0)}
START = {"head": torch.zeros(2)}


def store(root: Path) -> PersonalStore:
    return PersonalStore(root, "trial", "7")


def test_a_part_is_kept_once_it_counted(tmp_path: Path) -> None:
    store(tmp_path).propose(ONE, 3)
    assert tiny.same(store(tmp_path).load(START), START)
    store(tmp_path).settle(3)
    assert tiny.same(store(tmp_path).load(START), ONE)


def test_a_part_that_did_not_count_is_dropped(tmp_path: Path) -> None:
    store(tmp_path).propose(ONE, 3)
    store(tmp_path).settle(3)
    store(tmp_path).propose(TWO, 5)
    store(tmp_path).settle(3)
    assert tiny.same(store(tmp_path).load(START), ONE)
    store(tmp_path).settle(5)  # too late: it is gone
    assert tiny.same(store(tmp_path).load(START), ONE)


def test_hearing_twice_that_it_counted_changes_nothing(tmp_path: Path) -> None:
    store(tmp_path).propose(ONE, 3)
    for _ in range(2):
        store(tmp_path).settle(3)
    assert tiny.same(store(tmp_path).load(START), ONE)


def test_a_write_that_was_cut_short_is_as_if_it_had_not_begun(tmp_path: Path) -> None:
    store(tmp_path).propose(ONE, 1)
    store(tmp_path).settle(1)
    (store(tmp_path).folder / ".pending.99").write_bytes(b"half a fi")
    assert tiny.same(store(tmp_path).load(START), ONE)


def test_a_damaged_part_is_an_error_and_not_a_fresh_start(tmp_path: Path) -> None:
    store(tmp_path).propose(ONE, 1)
    store(tmp_path).settle(1)
    store(tmp_path).kept.write_bytes(b"\xff" * 40)
    with pytest.raises(RunFolderError, match="damaged"):
        store(tmp_path).load(START)


def test_a_full_disk_costs_a_node_its_answer_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.Everyone(), rounds=3)
    write, full = PersonalStore._write, iter([False, True, False])

    def writes(self: PersonalStore, path: Path, content: bytes) -> None:
        if self.folder.name == "1" and path == self.pending and next(full):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, path, content)

    monkeypatch.setattr(PersonalStore, "_write", writes)
    run = federation.serve()
    assert [sorted(r.participants) for r in run.rounds] == [[0, 1, 2], [0, 2], [0, 1, 2]]
    assert "No space left" in federation.events("failed")[0]["why"]


def test_the_part_of_another_model_is_refused(tmp_path: Path) -> None:
    store(tmp_path).propose(ONE, 1)
    store(tmp_path).settle(1)
    with pytest.raises(RunFolderError, match="another model"):
        store(tmp_path).load({"head": torch.zeros(5)})


@pytest.mark.parametrize("name", ["../../up", "a/b", "..", ".", "ü ber"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = PersonalStore(tmp_path, name, name).folder
    assert folder.resolve().parent.parent == tmp_path.resolve()


def test_the_last_participants_hear_that_they_counted(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 50, 1])
    federation.serve()
    assert federation.kept(0).exists()
    assert federation.kept(2).exists()
    assert not federation.pending(0).exists()
    assert federation.of(0).received[-1] == "query.settle"
    assert not federation.kept(1).exists()


def test_a_late_client_keeps_its_old_part(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.Everyone())
    federation.serve(rounds=1)
    before = federation.kept(1).read_bytes()
    federation.of(1).seconds = lambda kind: 3.5 if kind == "train" else 0.01
    again = {"out": tmp_path / "again", "inherit": True}
    run = federation.serve(rounds=6, participation=srpfl.FirstN(n=2), **again)
    assert all(1 not in record.participants for record in run.rounds)
    assert federation.of(1).received.count("train") > 2
    assert federation.kept(1).read_bytes() == before


def test_a_run_that_inherits_goes_on_with_the_parts(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.Everyone())
    federation.serve(rounds=1)
    first = load_file(federation.kept(0))
    federation.serve(rounds=1, out=tmp_path / "again", inherit=True)
    fresh = Federation(tmp_path / "fresh", [1, 1, 1], participation=srpfl.Everyone())
    fresh.serve(rounds=1)
    assert tiny.same(first, load_file(fresh.kept(0)))
    assert not tiny.same(first, load_file(federation.kept(0)))


def test_a_method_that_shares_everything_keeps_nothing(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], algorithm=srpfl.FedAvg())
    run = federation.serve(evaluate_every=3)
    assert [record.kind for record in run.evaluations] == ["global"]
    assert not (tmp_path / "personal").exists()


class Crash(Exception):
    pass


def begun(tmp_path: Path) -> Federation:
    """A run that has ended after some rounds, by a crash of its server."""
    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.Everyone(), rounds=6)

    def crash() -> None:
        raise Crash

    during(crash, 4.0, federation)
    with pytest.raises(Crash):
        federation.serve()
    assert federation.kept(0).exists()
    return federation


def test_a_second_run_of_the_same_name_is_turned_away_with_a_sentence(tmp_path: Path) -> None:
    federation = begun(tmp_path)
    owner = federation.kept(0).with_name("run").read_text()
    with pytest.raises(TooFewClientsError, match="belong to another run"):
        federation.serve(out=tmp_path / "second")
    assert federation.kept(0).with_name("run").read_text() == owner
    federation.serve()  # the first one goes on as if nothing had been


def test_who_took_the_parts_over_has_them_and_the_first_run_is_turned_away(tmp_path: Path) -> None:
    federation = begun(tmp_path)
    federation.serve(rounds=1, out=tmp_path / "second", inherit=True)
    with pytest.raises(TooFewClientsError, match="belong to another run"):
        federation.serve()


def test_nobody_else_can_read_the_parts(tmp_path: Path) -> None:
    store(tmp_path / "personal").propose(ONE, 1)
    folder = store(tmp_path / "personal").folder
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == {"pending.safetensors": 0o600, "run": 0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "personal").stat().st_mode & 0o777 == 0o700
