"""The page of ``identica report``: what is in it, and how a browser shows it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from identica.experiments import Receipt, catalogue, find
from identica.report.markdown import markdown
from identica.report.receipts import load
from identica.report.results import gather
from identica.report.results_page import MARK, results_page
from tests.report.ledgers import made_up, write_everything

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VOID = {"meta", "link", "br"}
TABLE1 = find("clica/table1")
#: Of the page: the overview, one for each experiment, what it took, how it was made.
PARTS = len(catalogue()) + 3


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_everything(tmp_path_factory.mktemp("results"))
    with (folder / "clica-table2.jsonl").open("a") as file:
        file.write('{"torn')
    receipts, notes = load(folder)
    return results_page(gather(receipts), notes)


class Outline(HTMLParser):
    """Whether what is opened is closed, and the headings, links and tables on the way."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.scopes: list[str | None] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "th":
            self.scopes.append(found.get("scope"))
        self.ids += [found["id"]] if found.get("id") else []  # type: ignore[list-item]
        self.links += [found["href"]] if tag == "a" else []  # type: ignore[list-item]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"


def test_the_page_is_well_formed_and_can_be_walked_by_headings(page: str) -> None:
    outline = Outline(page)
    assert outline.open == [] and outline.headings[0] == 1 and outline.headings.count(1) == 1
    assert all(b <= a + 1 for a, b in zip(outline.headings, outline.headings[1:], strict=False))
    assert len(set(outline.ids)) == len(outline.ids)
    assert {link.removeprefix("#") for link in outline.links} <= set(outline.ids)
    assert set(outline.scopes) == {"col", "colgroup", "row"}


def test_it_needs_nothing_from_elsewhere(page: str) -> None:
    assert MARK in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"|url\(|@import|https?://(?!www\.w3\.org)', page)


def test_every_experiment_and_row_is_there_beside_the_paper(page: str) -> None:
    for experiment in catalogue():
        assert f'id="{experiment.id.replace("/", "-")}"' in page
    section = page.split('id="clica-table2"')[1].split("</section>")[0]
    for row in find("clica/table2").rows:
        assert f'data-word="Row">{row.number}</th>' in section
        assert f"{row.published['contrastive'].mean:.2f} ± {row.published['contrastive'].sd:.2f}</td>" in section
    assert section.count(">stays low as predicted</span>") == 2 and ">as it falls</span>" in section
    assert "Row 3, seed 5: contrastive: The loss was not finite" in section
    other = page.split('id="clica-workshop-synthetic-au"')[1].split("</section>")[0]
    assert "<h3>Not run</h3>" in other and other.count('<span class="idle">not run</span>') == 4


def test_pictures_are_well_formed_and_say_what_they_show(page: str) -> None:
    pictures = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)]
    assert all(picture.get("role") == "img" and picture.get("aria-label") for picture in pictures)
    # three comparisons, three curves, one of time, and a learning curve for each row that was run
    assert len(pictures) == 3 + 3 + 1 + (12 + 3 + 10 + 29)
    first = page.split("Learning curves of 12 rows</summary>")[1].split("</svg>")[0]
    assert first.count("<polyline") == 2 * 5  # both scores of five seeds


def test_what_was_left_out_is_said(page: str) -> None:
    assert "Line 52 of clica-table2.jsonl is torn" in page.split('id="how-it-was-made"')[1]


def test_what_it_took_is_set_against_the_authors(page: str) -> None:
    took = page.split('id="what-it-took"')[1].split("</section>")[0]
    names = "clica/table1, clica/table2, clica/figure2"
    assert f"<li>{names}: The authors report 5 to 10 GPU-hours for a run (GeForce RTX 2080 Ti).</li>" in took
    assert "300 to 600</td>" in took and "435 to 870</td>" in took  # 60 and 87 runs


def test_text_from_receipts_is_escaped() -> None:
    table1 = find("clica/table1")
    strange = made_up(table1, table1.row("1"), 0, device="<script>alert(1)</script>", failed="<b>x</b>")
    text = results_page(gather([strange]), ["<i>note</i>"])
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text and "<b>x</b>" not in text
    assert "<i>note</i>" not in text


def test_the_same_receipts_give_the_same_page(tmp_path: Path) -> None:
    receipts = [made_up(find("clica/figure2"), row, 0) for row in find("clica/figure2").rows]
    assert results_page(gather(receipts)) == results_page(gather(receipts))


def test_long_tables_are_closed_and_say_how_they_stand(page: str) -> None:
    tables = [page.split(f'id="clica-{name}"')[1].split("</section>")[0] for name in ("table1", "table2", "figure2")]
    assert re.search(
        r"<details><summary>All 14 rows: \d+ reproduced[^<]*2 not run</summary>\s*<div class=.scroll", tables[0]
    )
    assert "All 10 rows" not in tables[1] and "All 3 rows" not in tables[0], "what is short is open"
    assert "<details><summary>The 29 points in numbers: 3 trends hold</summary>" in tables[2]
    assert "<details open><summary>Learning curves of 10 rows</summary>" in tables[1]
    assert "<details><summary>Learning curves of 29 points</summary>" in tables[2]


def test_the_overview_names_what_did_not_come_out(page: str) -> None:
    overview = page.split('id="overview"')[1].split("</section>")[0]
    assert overview.count('<div class="card ') == len(catalogue())
    missed = overview.split("What did not come out</h3>")[1]
    assert re.search(r'<a href="#clica-table2">clica/table2</a>: Row \d+ <span class="verdict bad">short', missed)
    low = {"scores": {"contrastive": {"r2": 0.9}}}
    both = [made_up(TABLE1, TABLE1.row("1"), 0), made_up(TABLE1, TABLE1.row("1"), 0, "paper", **low)]
    assert 'clica/table1</a>, budget paper: Row 1 <span class="verdict bad">' in results_page(gather(both))
    assert "What did not come out" not in results_page(gather(both[:1]))


def test_what_nothing_is_claimed_of_has_no_colour() -> None:
    table4 = find("clica/table4")
    scores = {model: {"r2": 0.97, "mcc": 0.97} for model in table4.models}
    section = results_page(gather([made_up(TABLE1, TABLE1.row("1"), 0), of_table4(scores)])).split('id="clica-table4"')[
        1
    ]
    cell = re.search(r'data-label="Identity, ours">(.*?)</td>', section.split('data-word="Row">1</th>')[1], re.DOTALL)
    assert cell is not None and "<b>97.00</b>" in cell[1] and "verdict" not in cell[1]
    row = re.search(r"^\| 1 .*97\.00 .*$", markdown(gather([of_table4(scores)])), re.MULTILINE)
    assert row is not None and "differs" not in row[0]


def of_table4(scores: dict[str, dict[str, float]]) -> Receipt:
    """The paper does not say what its observations' own scores are of, and nothing follows from ours."""
    data: dict[str, Any] = {"experiment": "clica/table4", "row": "1", "seed": 0, "budget": "fast", "scores": scores}
    return Receipt(**data, config={}, config_hash="c", device="H200", precision="bf16")


# In a browser. A window is at least 500 px wide, so the page is put into a frame of the width wanted, and a probe at
# its end tells the window around it what it sees.

PROBE = """<script>
const box = (element) => element.getBoundingClientRect();
parent.postMessage({
  width: document.documentElement.scrollWidth, height: document.body.scrollHeight, window: innerWidth,
  ground: getComputedStyle(document.body).backgroundColor,
  parts: [...document.querySelectorAll(".part")].filter((part) => box(part).height > 0).map((part) => part.id),
  chosen: [...document.querySelectorAll(".chips a[aria-current=true]")].map((link) => link.hash),
  wide: [...document.querySelectorAll("svg, table, .card, p")].filter((e) => box(e).right > innerWidth + 1).length,
  words: document.querySelectorAll("svg text").length,
}, "*");
</script>"""
FRAME = """<!doctype html><link rel="icon" href="data:,"><body style="margin:0"><script>
addEventListener("message", (event) => { document.body.dataset.seen = JSON.stringify(event.data); });
</script><iframe src="PAGE" style="width:WIDTHpx;height:TALLpx;border:0"></iframe>"""


def chromium(folder: Path, page: Path, *options: str, where: str = "") -> str:
    """What the browser prints for a page; fails if the page wrote anything to its console."""
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--enable-logging=stderr",
    ]
    command += [f"--user-data-dir={folder / 'profile'}", "--hide-scrollbars", *options, page.as_uri() + where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr
    return done.stdout


def probed(
    folder: Path, text: str, *options: str, width: int = 1280, tall: int = 2400, where: str = "", probe: str = PROBE
) -> dict[str, Any]:
    """What the probe sees."""
    page, frame = folder / "probed.html", folder / "frame.html"
    page.write_text(text.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    frame.write_text(
        FRAME.replace("PAGE", page.name + where).replace("WIDTH", str(width)).replace("TALL", str(tall)),
        encoding="utf-8",
    )
    printed = chromium(folder, frame, "--dump-dom", "--virtual-time-budget=4000", "--window-size=1300,2400", *options)
    seen = re.search(r'data-seen="([^"]*)"', printed)
    assert seen is not None
    return json.loads(html.unescape(seen[1]))  # type: ignore[no-any-return]


def in_a_browser(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that needs one."""
    return pytest.mark.browser(pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH")(test))


@in_a_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_fits_and_follows_the_scheme(tmp_path: Path, page: str, dark: bool, width: int) -> None:
    scheme = ["--force-dark-mode"] if dark else []
    seen = probed(tmp_path, page, *scheme, width=width)
    assert seen["window"] == seen["width"] == width and seen["wide"] == 0
    assert seen["parts"] == ["overview"] and seen["chosen"] == ["#overview"]
    assert seen["height"] < (2400 if width > 1000 else 6000), "the overview alone is short"
    everything = probed(tmp_path, page, *scheme, width=width, where="#all")
    assert everything["window"] == everything["width"] == width and everything["wide"] == 0
    assert len(everything["parts"]) == PARTS and everything["chosen"] == ["#all"] and everything["words"] > 500
    assert seen["ground"] == ("rgb(20, 23, 26)" if dark else "rgb(251, 250, 247)")
    path, picture = tmp_path / "report.html", tmp_path / "page.png"
    path.write_text(page, encoding="utf-8")
    chromium(tmp_path, path, f"--screenshot={picture}", f"--window-size={width},2400", *scheme)
    assert picture.stat().st_size > 100_000


@in_a_browser
def test_a_button_shows_one_experiment_alone(tmp_path: Path, page: str) -> None:
    seen = probed(tmp_path, page, where="#clica-table2")
    assert seen["parts"] == ["clica-table2"] and seen["chosen"] == ["#clica-table2"]
    assert probed(tmp_path, page, where="#nonsense")["parts"] == ["overview"]


@in_a_browser
def test_a_click_chooses_and_all_brings_everything_back(tmp_path: Path, page: str) -> None:
    clicks = """<script>
    const seen = [], shown = () => seen.push([...document.querySelectorAll(".part:not([hidden])")].map((p) => p.id));
    const steps = ["#clica-figure2", "#all"];
    addEventListener("hashchange", () => { shown(); next(); });
    const next = () => { const to = steps.shift();
      if (to) document.querySelector(`.chips a[href="${to}"]`).click();
      else parent.postMessage({seen}, "*"); };
    next();
    </script>"""
    seen = probed(tmp_path, page, probe=clicks)["seen"]
    assert seen[0] == ["clica-figure2"] and len(seen[1]) == PARTS


JUMPS = """<script>
const box = (selector) => document.querySelector(selector).getBoundingClientRect();
const seen = [], steps = STEPS;
const settled = (then) => setTimeout(then, 60);
const next = () => {
  const to = steps.shift();
  if (!to) return parent.postMessage({seen, height: box("nav").height, chips: box(".chips").height}, "*");
  document.querySelector(`.chips a[href="${to}"]`).click();
  settled(() => {
    const chip = box(`.chips a[href="${to}"]`), line = box(".chips");
    const inside = chip.left >= line.left && chip.right <= line.right;
    seen.push({to, inside, nav: box("nav").bottom, title: box(to + " h2").top, height: innerHeight});
    next();
  });
};
addEventListener("load", () => settled(next));
</script>"""


@in_a_browser
@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
@pytest.mark.parametrize("width", [1280, 900, 400])
def test_a_heading_that_one_jumps_to_is_below_the_navigation(
    tmp_path: Path, page: str, width: int, script: bool
) -> None:
    steps = ["#clica-figure2", "#aninfonce-figure2", "#all", "#clica-table2", "#overview"]
    text = page if script else re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    seen = probed(tmp_path, text, width=width, tall=700, probe=JUMPS.replace("STEPS", json.dumps(steps)))
    assert [one["to"] for one in seen["seen"]] == steps
    for one in seen["seen"]:
        assert one["nav"] > 0 and one["nav"] <= one["title"] < one["height"] / 2, one
        assert one["inside"] or not script, one
    assert seen["chips"] <= seen["height"] < 80, "one line at every width"


@in_a_browser
def test_without_its_script_everything_is_shown(tmp_path: Path, page: str) -> None:
    quiet, scripts = re.subn(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    seen = probed(tmp_path, quiet, where="#clica-table2")
    assert scripts == 1 and len(seen["parts"]) == PARTS and seen["chosen"] == []
