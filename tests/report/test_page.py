"""The report in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import made_up
import pytest
from browser import Page, table, text

from srpfl.report import write_report
from srpfl.runs.comparison import compare
from srpfl.runs.run import Run

CURVE = "document.querySelector('#curves path.curve[data-group=\"{}\"]').getAttribute('d')"


def opened(page: Page, runs: list[Run], folder: Path, hash: str = "") -> None:
    page.open(write_report(runs, folder / "report.html").as_uri() + hash)
    assert page.complaints == []


def pair() -> list[Run]:
    return [made_up.run("fedrep"), made_up.run("srpfl")]


def seeds() -> list[Run]:
    return [made_up.run(name, seed=seed) for name in ("fedrep", "srpfl") for seed in (0, 1)]


def set_value(page: Page, id: str, value: object, event: str = "change") -> None:
    page.evaluate(
        f"(() => {{ const input = document.getElementById('{id}');"
        f"input.value = {json.dumps(value)}; input.dispatchEvent(new Event('{event}')); }})()"
    )


def numbers(cells: list[str]) -> list[float]:
    """The means in the cells of a table."""
    return [float(cell.split(" ± ")[0].rstrip("×")) for cell in cells]


def test_it_opens_from_a_file_asks_for_nothing_and_does_not_complain(
    page: Page, tmp_path: Path
) -> None:
    opened(page, pair(), tmp_path)
    assert page.requests == [(tmp_path / "report.html").as_uri()]
    assert page.evaluate("document.querySelectorAll('canvas').length") == 9
    assert "made up </script>" in text(page, "subtitle")


def test_the_slider_counts_time_again_and_every_key_moves_it(page: Page, tmp_path: Path) -> None:
    opened(page, pair(), tmp_path)
    before = page.evaluate(CURVE.format("srpfl"))
    page.evaluate("document.getElementById('cost').focus()")
    costs = []
    for _ in range(20):
        page.press("ArrowRight")
        costs.append(float(page.evaluate("document.getElementById('cost-number').value")))
    assert costs == sorted(set(costs))  # it never sticks
    assert page.evaluate(CURVE.format("srpfl")) != before
    assert page.evaluate("document.getElementById('cost').ariaValueText") is not None
    set_value(page, "cost", 0, "input")
    assert page.evaluate(CURVE.format("srpfl")) == before
    for cost in (0.1, 3.7, 25):  # a value between two steps of the slider stays what it is
        set_value(page, "cost-number", cost)
        assert page.evaluate("view.cost") == cost


def test_a_button_keeps_the_focus_when_it_is_pressed(page: Page, tmp_path: Path) -> None:
    opened(page, pair(), tmp_path)
    for place in ("#costs button:nth-child(2)", "#legend button"):
        page.evaluate(f"document.querySelector('{place}').focus()")
        page.evaluate("document.activeElement.click()")
        assert page.evaluate(f"document.activeElement === document.querySelector('{place}')")
    pressed = "document.querySelector('#costs button:nth-child(2)').ariaPressed"
    assert page.evaluate(pressed) == "true"


def test_the_tables_say_what_the_library_computes(page: Page, tmp_path: Path) -> None:
    runs = seeds()
    opened(page, runs, tmp_path)
    set_value(page, "cost-number", 3)
    expected = compare(runs, communication=(0, 3, 10, 100))
    for shown, row in zip(table(page), expected.rows, strict=True):
        assert shown[0] == f"{row.method} (2 seeds)"
        assert shown[1] == f"{100 * row.final:.1f} %"
        for cell, cost in zip(shown[2:], row.time_to_target, strict=True):
            places = len(cell.split(" ± ")[0].partition(".")[2])
            pair = row.time_to_target[cost], row.time_spread[cost]
            assert cell == " ± ".join(f"{value:.{places}f}" for value in pair)
    (shown,) = table(page, "gains")
    mine = expected.rows[1]
    assert numbers(shown[1:]) == pytest.approx(list(mine.speedup.values()), rel=5e-3)
    assert text(page, "table").count(f"Speed-up over {expected.baseline}") == 1
    assert expected.target_origin in text(page, "target-note")


def test_seeds_are_one_line_with_a_band(page: Page, tmp_path: Path) -> None:
    runs = [made_up.run(seed=seed, first=0.3 + 0.02 * seed) for seed in (0, 1, 2)]
    opened(page, runs, tmp_path)
    assert page.evaluate("document.querySelectorAll('#curves path.curve').length") == 1
    assert page.evaluate("document.querySelectorAll('#curves path.band').length") == 1
    assert page.evaluate("document.querySelectorAll('#timelines canvas').length") == 1
    before = page.evaluate("document.querySelector('#timelines h3').textContent")
    set_value(page, "seed", "2")
    assert page.evaluate("document.querySelector('#timelines h3').textContent") != before
    assert table(page)[0][1] == "92.9 ± 1.6 %"


def test_speed_up_against_target_has_a_curve_for_each_c(page: Page, tmp_path: Path) -> None:
    opened(page, seeds(), tmp_path)
    costs = "[...document.querySelectorAll('#gains path.gain')].map(p => p.dataset.cost)"
    assert page.evaluate(costs) == ["0", "10", "100"]
    set_value(page, "cost-number", 3)
    assert page.evaluate(costs) == ["0", "3", "10", "100"]
    runs = {name: [run for run in seeds() if run.name == name] for name in ("fedrep", "srpfl")}
    from srpfl.runs.race import gains

    target = page.evaluate("view.target")
    expected = gains(runs["fedrep"], runs["srpfl"], 10, target)
    assert target in [at for at, _ in expected]  # the curve agrees with the tables beside it
    shown = page.evaluate("gainPoints('fedrep', 'srpfl', 10)")
    assert [point["speedup"] for point in shown] == pytest.approx(
        [each.speedup for _, each in expected]
    )
    assert [point["spread"] for point in shown] == pytest.approx(
        [each.spread for _, each in expected]
    )


def test_the_baseline_can_be_another(page: Page, tmp_path: Path) -> None:
    opened(page, [*pair(), made_up.run("flanp")], tmp_path)
    assert "Speed-up over fedrep" in text(page, "table")
    set_value(page, "baseline", "flanp")
    assert "Speed-up over flanp" in text(page, "table")
    assert [row[0] for row in table(page, "gains")] == ["fedrep", "srpfl"]


def test_a_target_out_of_reach_is_not_reached(page: Page, tmp_path: Path) -> None:
    opened(page, [made_up.run("srpfl")], tmp_path)
    set_value(page, "target", 99.9)
    assert table(page)[0][2] == "not reached"


def test_a_target_far_below_the_best_run_is_said(page: Page, tmp_path: Path) -> None:
    weak = [made_up.run(name, first=0.1) for name in ("fedrep", "srpfl")]
    opened(page, [*weak, made_up.run("fedavg", first=0.35)], tmp_path)
    assert "far from the best run (fedavg" in text(page, "target-note")


@pytest.mark.parametrize(
    ("where", "across", "down", "says"),
    [
        ("#curves svg", 0.7, 0.4, ["srpfl", "%", "round", "time"]),
        ("#gains svg", 0.5, 0.5, ["target", "C = 10", "×"]),
        ("#timelines canvas", 0.5, 0.8, ["round", "waited for", "continued after", "stage"]),
        ("#tenths svg", 0.5, 0.5, ["tenth", "srpfl", "%"]),
        ("#clients canvas", 0.3, 0.3, ["client", "accuracy", "counted", "late"]),
        ("#histories canvas", 0.5, 0.3, ["client", "after round", "first heard"]),
        ("#partitions canvas", 0.5, 0.3, ["client", "class", "points"]),
    ],
)
def test_hovering_shows_values(
    page: Page, tmp_path: Path, where: str, across: float, down: float, says: list[str]
) -> None:
    opened(page, pair(), tmp_path)
    assert page.evaluate("document.getElementById('tip').hidden")
    page.hover(where, across, down)
    page.wait_for("!document.getElementById('tip').hidden")
    words = text(page, "tip")
    assert all(word in words for word in says), words
    page.evaluate("draw()")  # what the words were about is drawn anew
    assert page.evaluate("document.getElementById('tip').hidden")


@pytest.mark.parametrize(
    "change",
    [
        "document.querySelector('#costs button:nth-child(2)').click()",
        "document.querySelector('#legend button').click()",
        "byId('log').click()",
    ],
)
def test_a_choice_hides_the_words_beside_the_mouse(page: Page, tmp_path: Path, change: str) -> None:
    """A resting mouse does not keep what was true before a choice made with the keyboard."""
    opened(page, pair(), tmp_path)
    page.hover("#curves svg", 0.7, 0.4)
    page.wait_for("!byId('tip').hidden")
    page.evaluate(f"{change}; null")
    assert page.evaluate("byId('tip').hidden")


def test_a_run_that_looks_at_c_is_shown_only_at_its_own(page: Page, tmp_path: Path) -> None:
    auto = made_up.run("auto", sees=True, communication=10.0)
    opened(page, [auto, made_up.run("srpfl", communication=10.0)], tmp_path)
    assert page.evaluate(CURVE.format("auto")).count("L") == 19
    set_value(page, "cost-number", 5)
    assert page.evaluate(CURVE.format("auto")) == "M0 0"
    assert "looks at C" in text(page, "hidden-note")
    assert page.evaluate(CURVE.format("srpfl")).count("L") == 19


def test_on_real_clients_there_is_no_c_to_move(page: Page, tmp_path: Path) -> None:
    opened(page, [made_up.run("srpfl", clock="RealTime")], tmp_path)
    assert page.evaluate("document.getElementById('cost-control').offsetParent") is None
    assert len(table(page)[0]) == 3  # a single time, and nothing about C
    assert "time (s)" in page.evaluate("document.querySelector('#curves svg').textContent")


def test_hiding_a_method_hides_it_everywhere(page: Page, tmp_path: Path) -> None:
    opened(page, [*pair(), made_up.run("flanp")], tmp_path)
    page.evaluate("document.querySelector('#legend button').click()")
    curves = ("#curves path.curve", "#timelines canvas", "#histories canvas")
    for place in (*curves, "#behind tbody tr", "#configs details"):
        assert page.evaluate(f"document.querySelectorAll('{place}').length") == 2, place
    assert [row[0] for row in table(page)] == ["srpfl", "flanp"]
    page.evaluate("document.querySelectorAll('#legend button').forEach((b, i) => i && b.click())")
    assert "All methods are hidden" in text(page, "table")
    assert "too many" not in text(page, "clients")


def test_the_address_holds_what_is_chosen(page: Page, tmp_path: Path) -> None:
    opened(page, pair(), tmp_path)
    set_value(page, "cost-number", 7)
    set_value(page, "target", 55)
    set_value(page, "axis", "round")
    page.evaluate("document.querySelector('#legend button').click()")
    hash = page.evaluate("location.hash")
    opened(page, pair(), tmp_path, hash)
    assert page.evaluate("[view.cost, view.target, view.axis, [...view.hidden]]") == [
        7, pytest.approx(0.55), "round", ["fedrep"],
    ]  # fmt: skip
    opened(page, pair(), tmp_path, "#C=x&data=77&seed=z&kind=none&target=y&hide=nobody")


def test_data_sets_are_shown_one_at_a_time(page: Page, tmp_path: Path) -> None:
    runs = [made_up.run(name, data=data) for data in ("one", "two") for name in ("fedrep", "srpfl")]
    opened(page, runs, tmp_path)
    assert page.evaluate("document.querySelectorAll('#legend button').length") == 2
    assert "one, 10 clients" in text(page, "subtitle")
    set_value(page, "board", "1")
    assert "two, 10 clients" in text(page, "subtitle")
    assert [row[0] for row in table(page)] == ["fedrep", "srpfl"]
    assert "data=1" in page.evaluate("location.hash")


def test_the_last_stage_always_has_its_label(page: Page, tmp_path: Path) -> None:
    # The last stage begins so late that there is no room for words to the right of its border.
    opened(page, [made_up.run(rounds=21, clients=16)], tmp_path)
    drawn = page.evaluate(
        "(() => { const words = []; const put = textAt; const keep = CanvasRenderingContext2D"
        ".prototype.fillText; CanvasRenderingContext2D.prototype.fillText = function (text) "
        "{ words.push(text); return keep.apply(this, arguments); }; drawTimelines();"
        "CanvasRenderingContext2D.prototype.fillText = keep; return words; })()"
    )
    assert "n = 16" in drawn


def test_the_replay_knows_who_is_at_work_and_who_was_heard(page: Page, tmp_path: Path) -> None:
    run = made_up.run("srpfl", rounds=20, clients=10)
    opened(page, [run], tmp_path)
    third = run.rounds[2]
    middle = (run.rounds[1].computing + third.computing) / 2
    state = page.evaluate(
        f"(() => {{ const s = stateAt(CONTENT.runs[0], {middle});"
        "return [s.place, s.over, [...s.heard].sort((a, b) => a - b), s.latest.round]; })()"
    )
    heard = {client for record in run.rounds[:2] for client in record.participants}
    assert state == [2, False, sorted(heard), 2]
    words = text(page, "replays")
    set_value(page, "moment", 1000, "input")
    assert text(page, "replays") != words
    assert "10 of 10 clients heard" in text(page, "replays")
    set_value(page, "moment", 0, "input")
    page.evaluate("document.getElementById('play').click()")
    page.wait_for("Number(document.getElementById('moment').value) > 0")
    page.evaluate("document.getElementById('play').click()")
    assert text(page, "play") == "Play"


def test_tenths_and_pairs_are_those_of_the_clients(page: Page, tmp_path: Path) -> None:
    opened(page, [made_up.run("fedrep", clients=20), made_up.run("srpfl", clients=20)], tmp_path)
    first = page.evaluate("tenthsOf(CONTENT.runs[0])[0]")
    clients = page.evaluate("CONTENT.runs[0].clients.slice(0, 2).map(client => client[2])")
    assert first == pytest.approx(sum(clients) / 2)
    assert page.evaluate("document.querySelectorAll('#pairs circle.pair').length") == 20
    told = text(page, "pairs")  # they learn the same here
    assert "0 clients are better off than under fedrep, 0 worse off and 20 as well off" in told
    hide_and_show = "for (const _ of '12') document.querySelector('#legend button').click()"
    page.evaluate(hide_and_show)
    assert page.evaluate("[byId('pair-x').value, byId('pair-y').value]") == ["fedrep", "srpfl"]


def test_what_is_taken_along(page: Page, tmp_path: Path) -> None:
    opened(page, pair(), tmp_path)
    svg = page.evaluate("svgText(document.querySelector('#curves svg'))")
    assert svg.startswith("<svg")
    assert "var(--" not in svg
    rows = page.evaluate("csvText(TABLES.curves())").splitlines()
    assert rows[0] == "method,seed,evaluation,round,time,value"
    assert len(rows) == 1 + 40
    for name in ("gains", "timelines", "clients"):
        assert len(page.evaluate(f"csvText(TABLES.{name}())").splitlines()) > 10
    assert page.evaluate("pngOf(byId('timelines'))").startswith("data:image/png")
    page.evaluate("document.querySelector('#configs details').open = true")
    assert page.evaluate("document.querySelectorAll('#configs .copy').length") == 4
    for done, told in (("true", "Copied"), ("false", "Press Ctrl-C")):  # some browsers refuse
        page.evaluate(f"copied = async () => {done}; document.querySelector('.copy').click()")
        assert text_of(page, ".copy") == told
    assert page.evaluate("String(getSelection())") == text_of(page, "pre.command")


def text_of(page: Page, selector: str) -> str:
    return str(page.evaluate(f"document.querySelector('{selector}').textContent"))


def test_title_and_date(page: Page, tmp_path: Path) -> None:
    page.open(write_report(pair(), tmp_path / "r.html", title="Tuesday's trial").as_uri())
    assert text(page, "title") == "Tuesday's trial"
    assert page.evaluate("document.title") == "Tuesday's trial"
    assert page.evaluate("new Date(CONTENT.made).getFullYear()") > 2000
    opened(page, pair(), tmp_path)
    assert text(page, "title") == "fedrep and srpfl on made up </script>"


@pytest.mark.parametrize("width", [390, 800, 1400])
def test_nothing_is_cut_off(page: Page, tmp_path: Path, width: int) -> None:
    page.resize(width, 900)
    try:
        opened(page, [*seeds(), made_up.run("lg-srpfl")], tmp_path)
        set_value(page, "cost-number", 3)
        wide = page.evaluate(
            "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right >"
            f" {width}).map(e => `${{e.tagName}} ${{e.id}} ${{e.parentElement.id}}`)"
        )
        assert wide == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        page.resize(1280, 900)


def test_on_paper_it_is_light(page: Page, tmp_path: Path) -> None:
    page.resize(1280, 900, dark=True)
    opened(page, pair(), tmp_path)
    assert page.evaluate("document.documentElement.dataset.ground") == "dark"
    page.evaluate(
        "addEventListener('beforeprint', () => { window.paper = "
        "[document.documentElement.dataset.ground, css('--ground'), "
        "document.querySelector('path.curve').getAttribute('stroke'), "
        "document.querySelector('#curves svg').viewBox.baseVal.width, "
        "document.querySelector('#timelines canvas').width / devicePixelRatio]; })"
    )
    page.print(tmp_path / "report.pdf")
    light = page.evaluate("CONTENT.palette.light[0]")
    # As wide as a page of paper: a wider chart would be shrunk there, and its words with it; one
    # of half a screen would be stretched.
    assert page.evaluate("window.paper") == ["light", "#ffffff", light, 700, 700]
    page.wait_for("document.documentElement.dataset.ground === 'dark'")
    page.resize(1280, 900)
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_a_run_without_evaluations_or_rounds_is_no_error(page: Page, tmp_path: Path) -> None:
    whole = made_up.run()
    opened(page, [Run(whole.config, whole.rounds, [])], tmp_path)
    opened(page, [Run(whole.config, [], [])], tmp_path)
    opened(page, [Run(whole.config, [], []), made_up.run("fedrep")], tmp_path)


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_on_its_ground(page: Page, tmp_path: Path, dark: bool) -> None:
    page.resize(1280, 900, dark=dark)
    opened(page, [made_up.run("srpfl")], tmp_path)
    colours = page.evaluate("['--ground', '--ink', '--soft'].map(css)")
    ground, ink, soft = (luminance(colour) for colour in colours)
    page.resize(1280, 900)
    assert contrast(ground, ink) > 7
    assert contrast(ground, soft) > 4.5  # the usual demand for text (WCAG AA)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def test_nine_runs_of_150_rounds_and_100_clients_open_in_3_seconds_and_10_mb(
    page: Page, tmp_path: Path
) -> None:
    names = [*made_up.METHODS, "hf-maml"]
    runs = [made_up.run(name, rounds=150, clients=100, start=10) for name in names]
    file = write_report(runs, tmp_path / "report.html")
    assert file.stat().st_size < 10_000_000
    # On a busy machine any opening may be disturbed; the best of a few is the page's own time.
    seconds = page.open(file.as_uri())
    for _ in range(9):
        if seconds >= 3:
            seconds = min(seconds, page.open(file.as_uri()))
    print(json.dumps({"seconds": seconds, "bytes": file.stat().st_size}))
    assert page.complaints == []
    assert page.evaluate("document.querySelectorAll('#curves path.curve').length") == 9
    assert seconds < 3
