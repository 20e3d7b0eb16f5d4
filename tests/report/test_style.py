"""Colours that everyone can tell apart, labels that say what differs."""

from __future__ import annotations

import dataclasses
from itertools import combinations, pairwise

import made_up
import numpy as np
import pytest

from srpfl.report.palette import DARK, DARK_STEPS, LIGHT, LIGHT_STEPS
from srpfl.report.style import PREFERRED, styles
from srpfl.runs.groups import groups_of

# Machado, Oliveira and Fernandes (2009), severity 1: what a dichromat sees, in linear RGB.
VISION = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour: str, vision: str) -> np.ndarray:
    """CIE Lab of a colour as seen with one kind of vision."""
    parts = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISION[vision]) @ linear, 0, 1)
    x, y, z = np.cbrt(TO_XYZ @ seen / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("vision", VISION)
def test_every_pair_of_colours_is_apart(palette: list[str], vision: str) -> None:
    # A difference of 2.3 is just noticeable; lines on a page need several times that.
    for one, other in combinations(palette, 2):
        assert np.linalg.norm(lab(one, vision) - lab(other, vision)) > 15, (one, other)


def test_a_family_has_its_colour_in_every_report_and_who_waits_is_dashed() -> None:
    alone = styles([made_up.run("srpfl")])[0]
    among = styles([made_up.run(name) for name in ("hf-maml", "mine", "fedrep", "srpfl", "flanp")])
    maml, mine, fedrep, srpfl, flanp = among
    assert alone.slot == srpfl.slot == fedrep.slot == PREFERRED["FedRep"]
    assert len({maml.slot, srpfl.slot, flanp.slot}) == 3
    assert [look.dash != "" for look in among] == [True, False, True, False, False]
    assert mine.slot != srpfl.slot  # it is of the family too, and does not wait either


def test_seeds_share_a_colour_and_variants_do_not() -> None:
    runs = [made_up.run(seed=0), made_up.run(seed=1), made_up.run(seed=0, start=5)]
    looks = styles(runs)
    assert [look.group for look in looks] == ["srpfl (start 2)"] * 2 + ["srpfl (start 5)"]
    assert [look.label for look in looks[:2]] == [
        "srpfl (start 2), seed 0",
        "srpfl (start 2), seed 1",
    ]
    assert looks[0].slot == looks[1].slot != looks[2].slot


def test_beyond_eight_colours_lines_have_marks() -> None:
    looks = styles([made_up.run("srpfl", start=start) for start in range(1, 11)])
    assert len({(look.slot % len(LIGHT), look.mark) for look in looks}) == 10
    assert {look.mark for look in looks} == {"", "o"}


def test_the_same_run_twice_gets_two_labels() -> None:
    assert [look.label for look in styles([made_up.run(), made_up.run()])] == ["srpfl", "srpfl #2"]


def test_labels_have_neither_hashes_nor_what_was_left_open() -> None:
    run = made_up.run()
    left_open = {**run.config, "options": {"shards": None, "alpha": 0.5}}
    chosen = {**run.config, "options": {"shards": 3, "alpha": 0.5}, "model": "LeNet5(\n  (conv1)"}
    other = {**run.config, "options": {"shards": 3, "alpha": 0.5}, "model": "LeNet5(\n  (conv2)"}
    runs = [dataclasses.replace(run, config=config) for config in (left_open, chosen, other)]
    assert groups_of(runs) == [
        "srpfl (model MLP)",
        "srpfl (model LeNet5 1, shards 3)",
        "srpfl (model LeNet5 2, shards 3)",
    ]


def test_labels_name_what_a_policy_begins_with() -> None:
    """Also where that was left to the policy: a tenth of the clients."""
    run = made_up.run(clients=20)
    starts = [None, 4, 2]
    runs = [
        dataclasses.replace(
            run,
            config={
                **run.config,
                "participation": {"kind": "Doubling", "sample": 1.0, "start": start, "every": 5},
            },
        )
        for start in starts
    ]
    assert groups_of(runs) == ["srpfl (start 2)", "srpfl (start 4)", "srpfl (start 2)"]
    assert groups_of(runs[:1]) == ["srpfl"]


@pytest.mark.parametrize("steps", [LIGHT_STEPS, DARK_STEPS], ids=["light", "dark"])
def test_steps_can_be_told_apart_in_grey(steps: list[str]) -> None:
    grey = [lab(colour, "usual")[0] for colour in steps]
    gaps = [abs(one - other) for one, other in pairwise(grey)]
    assert grey in (sorted(grey), sorted(grey, reverse=True))
    assert min(gaps) > 3
