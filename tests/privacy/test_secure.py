"""A sum of which a server learns nothing else."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="srpfl[flower] is not installed")

from privacy.curious import laid_bare, looks_random
from srpfl.algorithms.averages import averages
from srpfl.algorithms.summed import SecurePrivate
from srpfl.errors import ConfigError, DivergedError
from srpfl.privacy.secure import (
    Member,
    SecureSumError,
    fixed_point,
    real,
    secure_sum,
    unmasked,
)

NUMBERS = 600


def answers(count: int, seed: int = 0) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {10 * name: fixed_point(rng.normal(size=NUMBERS)) for name in range(count)}


def plain(given: dict[int, np.ndarray], counted: list[int]) -> np.ndarray:
    return np.sum([given[name] for name in counted], axis=0, dtype=np.uint64)


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 9), st.randoms(use_true_random=False))
def test_it_is_the_plain_sum_to_the_last_bit_whoever_is_late(count: int, draws: object) -> None:
    given = answers(count)
    least = count // 2 + 1
    names = sorted(given)
    draws.shuffle(names)  # type: ignore[attr-defined]
    counted = names[: draws.randint(least, count)]  # type: ignore[attr-defined]
    assert np.array_equal(secure_sum(given, counted), plain(given, counted))


def test_with_thirty_percent_late() -> None:
    given = answers(10)
    counted = sorted(given)[3:]
    assert np.array_equal(secure_sum(given, counted), plain(given, counted))
    mean = real(secure_sum(given, counted)) / 7
    assert np.abs(mean - np.mean([real(given[n]) for n in counted], axis=0)).max() < 1e-9


class Round:
    """One round up to the masked answers, with all that a server sees of it."""

    def __init__(self, given: dict[int, np.ndarray], threshold: int) -> None:
        self.threshold, names = threshold, sorted(given)
        self.members = {name: Member(name) for name in names}
        self.keys = {name: member.introduce() for name, member in self.members.items()}
        self.letters = {n: m.share(self.keys, threshold) for n, m in self.members.items()}
        for name, member in self.members.items():
            member.receive({o: self.letters[o][name] for o in names if o != name})
        self.masked = {name: m.mask(given[name]) for name, m in self.members.items()}


def test_what_the_server_gets_of_one_client_looks_random_and_differs_each_time() -> None:
    given = {name: fixed_point(np.zeros(NUMBERS)) for name in (0, 1, 2)}
    first, second = Round(given, 2), Round(given, 2)
    for name in given:
        assert looks_random(first.masked[name])
        assert not looks_random(given[name])
        assert looks_random(first.masked[name] - second.masked[name])  # no mask serves twice
    assert looks_random(first.masked[0] - first.masked[1])
    members = [*first.members.values(), *second.members.values()]
    assert len({secret for m in members for secret in (m._letters, m._scalar, m._own)}) == 18


def test_an_answer_that_counted_stays_hidden_after_the_sum_is_known() -> None:
    """Its own mask is known then; those that it shares with others who counted are not."""
    given, counted = answers(6), [0, 10, 20, 30]
    seen = Round(given, 4)
    revealed = [seen.members[name].reveal(counted) for name in counted]
    masked = {name: seen.masked[name] for name in counted}
    bare = {n: laid_bare(n, masked, seen.keys, revealed, 4) for n in counted}
    for name in counted:
        assert looks_random(bare[name])
        assert looks_random(bare[name] - given[name])
    assert np.array_equal(plain(bare, counted), plain(given, counted))  # nothing else is left


def test_a_late_answer_stays_hidden_after_the_sum_is_known() -> None:
    """The server can take off the late one's pair masks; its own mask stays."""
    given = answers(4)
    seen = Round(given, 3)
    late, counted = 0, [10, 20, 30]
    revealed = [seen.members[name].reveal(counted) for name in counted]
    total = unmasked({n: seen.masked[n] for n in counted}, seen.keys, revealed, 3)
    assert np.array_equal(total, plain(given, counted))
    # With the late answer in, the rest of the masks would have to cancel; they do not.
    attempt = unmasked(seen.masked, seen.keys, revealed, 3) - total
    assert looks_random(attempt)
    assert not np.array_equal(attempt, given[late])


def test_fewer_than_the_threshold_reveal_nothing() -> None:
    seen = Round(answers(5), 3)
    counted = [0, 10, 20]
    revealed = [seen.members[name].reveal(counted) for name in counted]
    with pytest.raises(SecureSumError, match="2 of 3"):
        unmasked({n: seen.masked[n] for n in counted}, seen.keys, revealed[:2], 3)


@pytest.mark.parametrize("scalar", [b"\xff" * 32, bytes(32), b"\1" * 32])
def test_a_late_one_that_sealed_shares_of_another_key_is_found_out(scalar: bytes) -> None:
    """Also where there is no key with such a number: nothing but a sentence comes of it."""
    members = {name: Member(name) for name in range(4)}
    keys = {name: member.introduce() for name, member in members.items()}
    members[3]._scalar, members[3].introduce = scalar, lambda: keys[3]  # type: ignore[method-assign]
    letters = {n: m.share(keys, threshold=3) for n, m in members.items()}
    for name, member in members.items():
        member.receive({other: letters[other][name] for other in members if other != name})
    masked = {n: members[n].mask(fixed_point(np.ones(5))) for n in range(3)}
    revealed = [members[n].reveal(range(3)) for n in range(3)]
    with pytest.raises(SecureSumError, match="client 3's key"):
        unmasked(masked, keys, revealed, 3)


def test_a_member_reveals_once_and_never_for_too_few() -> None:
    member = Round(answers(5), 3).members[0]
    with pytest.raises(SecureSumError, match="too few"):
        member.reveal([0, 10])
    member.reveal([0, 10, 20])
    with pytest.raises(SecureSumError, match="once"):
        member.reveal([10, 20, 30])


def test_members_reveal_for_no_fewer_than_they_were_told_with_the_keys() -> None:
    members = {name: Member(name) for name in range(5)}
    keys = {name: member.introduce() for name, member in members.items()}
    letters = {n: m.share(keys, threshold=3, fewest=4) for n, m in members.items()}
    member = members[0]
    member.receive({other: letters[other][0] for other in range(1, 5)})
    member = Member.load(member.dump())
    assert member.fewest == 4
    with pytest.raises(SecureSumError, match="too few"):
        member.reveal([0, 1, 2])
    assert member.reveal([0, 1, 2, 3])


@pytest.mark.parametrize("late", [0, 1, 3])
def test_noise_under_masks_is_never_less_than_was_accounted_for(late: int) -> None:
    """Ten are asked and seven are needed: with three late the noise is as claimed, with fewer of
    them more."""
    hides, zeros = SecurePrivate(0.5, 4.0, key=None), {"w": torch.zeros(4000)}
    parts = {n: zeros if n % 2 else {"w": torch.randn(4000)} for n in range(10)}
    own = {n: hides.vector(zeros, p, 3.0, answers=7).numpy() for n, p in parts.items()}
    counted = list(range(late, 10))
    total = secure_sum({n: v.view(np.uint64) for n, v in own.items()}, counted)
    assert np.array_equal(total, plain({n: v.view(np.uint64) for n, v in own.items()}, counted))
    cut = [hides.private.clipped(zeros, parts[n])["w"].numpy() for n in counted]
    noise = real(total)[:-1] - np.sum(cut, axis=0)
    claimed = 0.5 * 4.0 * np.sqrt(len(counted) / 7)
    assert noise.std() == pytest.approx(claimed, rel=0.056)  # five deviations of 4,000 numbers'
    assert real(total)[-1] == 0.0  # the loss stays at home


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-3, 100.0), st.integers(0, 2**32 - 1))
def test_in_fixed_point_no_update_is_longer_than_the_clip(clip: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sent = {"w": torch.from_numpy(rng.normal(size=50)).float()}
    part = {
        "w": sent["w"] + torch.from_numpy(clip * 10 ** rng.uniform(-1, 5) * rng.normal(size=50))
    }
    whole = SecurePrivate(clip, 0.0).noisy(sent, part, answers=3).tolist()
    assert sum(n * n for n in whole) <= Fraction(clip) ** 2 * 2**64  # in whole numbers, so exactly


def test_noise_too_fine_for_fixed_point_is_refused() -> None:
    sent = {"w": torch.zeros(3)}
    with pytest.raises(ConfigError, match="lost in fixed point"):
        SecurePrivate(1e-7, 1.0).noisy(sent, sent, answers=3)


def test_half_of_the_members_are_not_enough() -> None:
    members = [Member(0), Member(1)]
    keys = {member.name: member.introduce() for member in members}
    with pytest.raises(SecureSumError, match="more than half"):
        members[0].share(keys, 1)


def test_a_letter_for_another_cannot_be_read() -> None:
    seen = Round(answers(3), 2)
    member = Member(0)
    member.share({**seen.keys, 0: member.introduce()}, 2)
    member.receive({10: seen.letters[10][20], 20: seen.letters[20][10]})
    assert member.reveal([0, 10, 20]).keys() == {0}  # it holds nothing but its own


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DivergedError, match="too large"):
        fixed_point(np.array([1e10]))


def test_the_simulators_secure_average_is_the_protocols_to_the_last_bit() -> None:
    sent = {"w": torch.linspace(-1, 1, NUMBERS)}
    rng = np.random.default_rng(1)
    parts = [{"w": sent["w"] + torch.from_numpy(rng.normal(size=NUMBERS)).float()} for _ in "abcd"]
    updates = {k: (part["w"].double() - sent["w"].double()).numpy() for k, part in enumerate(parts)}
    total = real(secure_sum({k: fixed_point(u) for k, u in updates.items()}, [0, 1, 3]))
    mean = (sent["w"].double() + torch.from_numpy(total) / 3).float()
    three = [parts[0], parts[1], parts[3]]
    assert torch.equal(averages("secure")(sent, three, [1.0] * 3)["w"], mean)
