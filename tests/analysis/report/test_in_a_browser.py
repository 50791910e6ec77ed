"""The page in Chromium: nothing is fetched or complained about, tables sort, rounds open, keys and live data work."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.live.server import ReportServer
from analysis.report import write
from testbed.network.recorder import Event
from testbed.records import RunRecords
from tests.analysis.recorded import RecordedRound, asked, synthetic_run, write_run

MARKUP = "<script>document.title = 'taken'</script><b>bold</b>"


pytestmark = pytest.mark.xdist_group("browser")  # in one process, which starts it once


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    names = ["random", "lotto-client-centric", "batch-partition"]
    runs = [synthetic_run(folder / name, name, sweep={"selection.protocol": name}) for name in names]
    experiment = {"name": MARKUP, "seed": 1, "rounds": 2, "population": 100, "provenance": {"label": MARKUP}}
    first = asked(MARKUP, 0.0, [0, 1, 2, 3], [1.0, None, 3.0, 0.5], outcome=[0, 3, 4, 5], down=1000, up=10)
    rounds = [
        RecordedRound(0.0, 2.0, [first], [0, 1, 2, 3], [0], events=[Event(MARKUP, "client:3", "refusal", MARKUP)]),
        RecordedRound(2.0, 4.0, [asked(MARKUP, 2.0, [0, 1], [3.0, 3.5])], [0, 1], [0, 1], accuracy=0.5),
    ]
    return write([*runs, write_run(folder / "markup", experiment, rounds)], folder / "report.html")


class Opened:
    """A page in a context of its own, and what it has said or asked for."""

    def __init__(self, chromium: Any, address: str, offline: bool = True, **options: Any) -> None:
        self.context = chromium.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
        self.context.set_offline(offline)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)
        self.page.wait_for_selector("#curves-section .main-svg")
        self.page.wait_for_selector(".client-line")


@pytest.fixture(scope="module")
def opened(chromium: Any, page_file: Path) -> Iterator[Opened]:
    one = Opened(chromium, page_file.as_uri(), color_scheme="light")
    yield one
    one.context.close()


def until(page: Any, holds: Callable[[], bool]) -> None:
    """Wait until something holds; the page's policy forbids Playwright's own way, which evaluates text."""
    for _ in range(400):
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it never came to hold")


def column(page: Any, sheet: str, place: int) -> list[str]:
    return list(page.locator(f"[data-sheet={sheet}] tbody tr > :nth-child({place})").all_inner_texts())


def test_records_are_text_and_nothing_is_fetched(opened: Opened, page_file: Path) -> None:
    page = opened.page
    assert "taken" not in page.title().split("title = ")[0]
    assert page.title().endswith("testbed report")
    assert page.locator("main b").count() == 0
    assert MARKUP in column(page, "runs", 1)
    assert [url for url in opened.asked if not url.startswith(("data:", "blob:"))] == [page_file.as_uri()]
    assert opened.said == []


def test_tables_sort_by_keyboard(opened: Opened) -> None:
    page = opened.page
    head = page.locator("[data-sheet=overhead] th", has_text="Round time [").first
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    up = column(page, "overhead", 1)
    page.keyboard.press("Enter")  # the focus stays on the head
    assert head.get_attribute("aria-sort") == "descending"
    down = column(page, "overhead", 1)
    assert sorted(up) == sorted(down)
    assert up[0] == MARKUP  # the only one with rounds of two seconds
    assert up == down[::-1]


def test_a_button_shows_all_columns_and_their_notes_by_keyboard(opened: Opened) -> None:
    page = opened.page
    table = page.locator("[data-sheet=overhead]")
    heads = [head.partition(" [")[0].strip() for head in table.locator("thead th").all_inner_texts()]
    assert "Client time" not in heads
    notes = table.locator(".notes li")
    assert notes.filter(has_text="F: ").count() == 0
    table.locator("button.columns").focus()
    page.keyboard.press("Enter")
    every = [head.partition(" [")[0].strip() for head in table.locator("thead th").all_inner_texts()]
    assert {"Client time", "F", "C", *heads} <= set(every)
    assert notes.filter(has_text="F: ").count() == 1
    page.keyboard.press("Enter")  # the focus stays on the button
    assert [head.partition(" [")[0].strip() for head in table.locator("thead th").all_inner_texts()] == heads


def test_the_page_begins_with_its_figure_and_the_table(opened: Opened) -> None:
    page = opened.page
    shown = page.locator("main > section:not([hidden])").evaluate_all("all => all.map((one) => one.id)")
    assert shown[0] == "results-section"
    assert shown.index("curves-section") < shown.index("rounds-section") < shown.index("runs-section")
    figure = page.locator("#results-section .main-svg").first.bounding_box()
    table = page.locator("#results-section table").bounding_box()
    assert figure["y"] < table["y"]
    assert page.locator("#results-section select").count() == 0


def test_findings_are_listed_and_without_any_there_is_no_heading(
    chromium: Any, page_file: Path, tmp_path: Path
) -> None:
    finding = {"code": "waited", "text": f"4 of 5 waited {MARKUP}", "rows": ["a", "b", "c", "d", "e"], "keys": ["k.y"]}
    page_text = page_file.read_text(encoding="utf-8")
    for number in (0, 1, 7):
        at, end = page_text.index('"findings": ['), page_text.index('], "curves": [')
        told = json.dumps([finding] * number).replace("<", "\\u003c").replace(">", "\\u003e")
        file = tmp_path / f"{number}.html"
        file.write_text(f'{page_text[:at]}"findings": {told[:-1]}{page_text[end:]}', encoding="utf-8")
        one = Opened(chromium, file.as_uri())
        items = one.page.locator("#results-section .findings > li")
        assert one.page.locator("#results-section h3", has_text="Findings").count() == (number > 0)
        assert items.count() == number
        assert items.filter(visible=True).count() == min(number, 5)
        if number:
            assert MARKUP in items.first.inner_text()
            assert items.first.locator("code").all_inner_texts() == ["k.y"]
            assert "a, b, c, d and 1 more" in items.first.inner_text()
        one.context.close()


def test_bands_stay_between_nothing_and_all(chromium: Any, tmp_path: Path) -> None:
    runs = []
    for seed, accuracies in enumerate([(0.1, 0.6), (0.4, 0.9)]):  # intervals of one degree of freedom are wide
        experiment = {"name": "wide", "seed": seed, "rounds": 2, "population": 2}
        rounds = [
            RecordedRound(at, at + 1.0, [asked("train", at, [0, 1], [at + 0.5] * 2)], [0, 1], [0, 1], accuracy=accuracy)
            for at, accuracy in zip((0.0, 1.0), accuracies, strict=True)
        ]
        runs.append(write_run(tmp_path / str(seed), experiment, rounds))
    one = Opened(chromium, write(runs, tmp_path / "report.html").as_uri())
    for section in ("#results-section", "#curves-section"):
        bands = one.page.locator(f"{section} .js-plotly-plot").evaluate(
            "plot => plot.data.filter((trace) => trace.fill).flatMap((trace) => trace.y)"
        )
        assert bands
        assert 0 <= min(bands) <= max(bands) <= 100
        assert min(bands) == 0 or max(bands) == 100  # or it would show nothing
    one.context.close()


def test_curves_toggle_and_have_a_table(opened: Opened) -> None:
    page = opened.page
    section = page.locator("#curves-section")
    before = section.locator(".scatterlayer .trace").count()
    section.get_by_label("lotto-client-centric").uncheck()
    until(page, lambda: section.locator(".scatterlayer .trace").count() == before - 1)
    section.get_by_text("The same as a table").click()
    until(page, lambda: section.locator("details th[scope=col]").count() > 0)
    heads = section.locator("details th[scope=col]").all_inner_texts()
    assert [head.strip() for head in heads] == ["Round", "random", "batch-partition", MARKUP]
    section.get_by_label("Show", exact=True).select_option("round_s")
    assert "Round time" in section.locator("figure, [role=figure]").get_attribute("aria-label")
    assert opened.said == []


def test_a_round_opens_and_says_who_was_lost_and_why(opened: Opened) -> None:
    page = opened.page
    explorer = page.locator("#rounds-section")
    explorer.get_by_label("Run", exact=True).select_option(label=f"{MARKUP}, seed 1")
    until(page, lambda: page.locator(".client-line").count() == 4)
    summary = explorer.locator(".summary").inner_text()
    assert "round 1: completed, 2 s" in summary
    assert "3 clients were lost" in summary
    explorer.get_by_role("listbox").focus()
    page.keyboard.press("End")
    page.keyboard.press("Home")
    assert "Client 2: participant, not in the sum; late" in explorer.locator("h3").inner_text()
    assert "the answer arrived after the end of the stage" in explorer.locator(".client").inner_text()
    explorer.get_by_label("Show", exact=True).select_option("refused")
    page.keyboard.press("Tab")
    explorer.locator(".client-line").first.click()
    assert f"refusal: {MARKUP}" in explorer.locator(".client").inner_text()
    explorer.get_by_label("Show", exact=True).select_option("all")
    explorer.get_by_role("button", name="Next round").press("Enter")
    until(page, lambda: page.locator(".client-line").count() == 2)
    assert explorer.get_by_role("button", name="Next round").is_disabled()
    assert opened.said == []


def test_a_walk_by_keyboard_reaches_everything(opened: Opened) -> None:
    page = opened.page
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    page.locator(".skip").focus()
    seen: list[str] = []
    for _ in range(400):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "(() => { const e = document.activeElement; const s = e.closest('main > section');"
                "return `${s ? s.id : ''} ${e.localName}`; })()"
            )
        )
        if seen[-1].startswith("provenance"):
            break
    for wanted in ("results-section button", "curves-section select", "curves-section input", "rounds-section select"):
        assert wanted in seen
    assert seen[-1] == "provenance-section summary"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_and_in_the_dark(chromium: Any, page_file: Path, scheme: str) -> None:
    one = Opened(chromium, page_file.as_uri(), color_scheme=scheme, viewport={"width": 400, "height": 800})
    page = one.page
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(255, 255, 255)") == (scheme == "light")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert one.said == []
    one.context.close()


def test_live_the_page_follows_and_keeps_the_place(
    chromium: Any, tmp_path: Path, make_run: Callable[..., RunRecords]
) -> None:
    whole, path = make_run("whole", rounds=4), tmp_path / "live"
    make_run("live", rounds=4, finish=False)
    experiment = (path / "experiment.yaml").read_text()
    (path / "experiment.yaml").write_text(experiment.replace("rounds: 4", "rounds: 9"))
    server = ReportServer([str(path)])
    serving = threading.Thread(target=server.serve)
    serving.start()
    try:
        one = Opened(chromium, server.address, offline=False)
        page, explorer = one.page, one.page.locator("#rounds-section")
        assert page.locator("[data-progress] tbody td").nth(1).inner_text() == "4 of 9"
        explorer.get_by_label("Round", exact=True).select_option("2")
        page.locator("#curves-section input").first.uncheck()
        assert "not finished" in page.locator("[data-sheet=runs]").inner_text()
        for file in whole.path.iterdir():  # as if it had ended meanwhile
            if file.is_file():
                (path / file.name).write_bytes(file.read_bytes())
        until(page, lambda: column(page, "runs", 6) == ["finished"])
        assert explorer.get_by_label("Round", exact=True).input_value() == "2"
        assert not page.locator("#curves-section input").first.is_checked()
        assert "random" in page.locator("h1").inner_text() + page.locator("[data-sheet=runs]").inner_text()
        assert all(url.startswith((server.address, "blob:", "data:")) for url in one.asked)
        assert one.said == []
        one.context.close()
    finally:
        server.stop()
        serving.join(10)


def test_a_run_without_seed_or_completed_round_says_so(chromium: Any, tmp_path: Path) -> None:
    run = synthetic_run(tmp_path / "aborted", seed=None, rounds=2, failing={1: "aborted", 2: "aborted"})
    context = chromium.new_context()
    page = context.new_page()
    page.goto(write([run], tmp_path / "report.html").as_uri())
    stages = page.locator("#stages-section")
    stages.wait_for()
    assert "no completed round" in stages.inner_text()
    assert stages.locator("[data-bars]").is_hidden()
    assert page.locator("#targets-section code").first.inner_text() == "testbed status"
    assert "cannot be repeated" in page.locator("#provenance-section").inner_text()
    context.close()
