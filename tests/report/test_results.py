"""From receipts to sections: which budget speaks first, what is left out and said, and RESULTS.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from identica.experiments import Receipt, append, find, read
from identica.report.markdown import MARK, escape, markdown, table
from identica.report.receipts import learning_curve, load, usable
from identica.report.results import Block, Results, commit_name, gather, hours_text
from tests.report.ledgers import COMMIT, made_up, write, write_everything

TABLE1 = find("clica/table1")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Results:
    receipts, notes = load(write_everything(tmp_path_factory.mktemp("results")))
    assert notes == ()
    return gather(receipts)


def block(results: Results, experiment_id: str, budget: str) -> Block:
    blocks = (block for section in results.sections for block in section.blocks)
    return next(found for found in blocks if (found.experiment.id, found.budget) == (experiment_id, budget))


def lines_of(text: str, heading: str) -> list[str]:
    """The lines of RESULTS.md between a heading and the next one of its level."""
    level = heading.split(" ")[0]
    after = text.split(f"{heading}\n", 1)[1]
    return re.split(rf"^{level} ", after, maxsplit=1, flags=re.MULTILINE)[0].splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


# Reading a folder


@pytest.mark.parametrize("make", ["missing", "empty", "file", "foreign"])
def test_without_receipts_the_error_says_how_to_make_some(tmp_path: Path, make: str) -> None:
    folder = tmp_path / "results"
    if make == "file":
        folder.write_text("x")
    elif make != "missing":
        folder.mkdir()
    if make == "foreign":
        (folder / "notes.jsonl").write_text('{"a": 1}\n' * 1000)
    with pytest.raises(ValueError, match="identica reproduce") as error:
        load(folder)
    assert str(folder) in str(error.value) and len(str(error.value)) < 400


def test_a_torn_line_is_named_and_the_rest_is_read_and_nothing_is_changed(tmp_path: Path) -> None:
    path = write(tmp_path, "clica/table1", "1,2", seeds=2)
    with path.open("ab") as file:
        file.write(b'{"experiment": "clica/ta')
    before = path.read_bytes()
    receipts, notes = load(tmp_path)
    assert len(receipts) == 4
    assert notes == ("Line 5 of clica-table1.jsonl is torn: whoever wrote it was stopped. It is left out.",)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_strange_files_are_named_once_and_do_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path, "clica/table1", "1", seeds=1)
    with path.open("a") as file:
        file.write('{"not": "a receipt"}\n' * 10)
    (tmp_path / "a-folder.jsonl").mkdir()
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "deep.jsonl").write_text("[" * 100_000)
    (tmp_path / "notes.txt").write_text("not a ledger")
    receipts, notes = load(tmp_path)
    assert len(receipts) == 1
    said = "\n".join(notes)
    assert all(name in said for name in ("a-folder.jsonl", "binary.jsonl", "deep.jsonl")) and "notes.txt" not in said
    assert "7 more lines of clica-table1.jsonl" in said and len(notes) == 7


def test_receipts_that_cannot_be_used_are_counted_with_the_reason() -> None:
    good = made_up(TABLE1, TABLE1.row("1"), 0)
    bad = [
        made_up(TABLE1, TABLE1.row("1"), 0, experiment="other/table9"),
        made_up(TABLE1, TABLE1.row("1"), 1, experiment="other/table9"),
        made_up(TABLE1, TABLE1.row("1"), 0, row="99"),
        made_up(TABLE1, TABLE1.row("2"), 0, seconds="long"),
        made_up(TABLE1, TABLE1.row("2"), 1, device=None),
        made_up(TABLE1, TABLE1.row("2"), 2, scores={"contrastive": {"mcc": 0.5}}),
    ]
    kept, notes = usable([good, *bad], {TABLE1.id: TABLE1})
    assert kept == [good]
    assert notes[0] == "2 receipts left out: the catalogue has no experiment other/table9."
    assert "has no row 99" in notes[1] and "seconds" in notes[2] and "device" in notes[3] and "no r2" in notes[4]
    text = markdown(gather([good, *bad]))
    assert "## Left out" in text and "other/table9" in text


@pytest.mark.parametrize("models", [{}, {"contrastive": 3}, {"contrastive": {"curve": [1]}}])
def test_a_receipt_without_a_learning_curve_has_an_empty_one(models: dict[str, object]) -> None:
    assert learning_curve(made_up(TABLE1, TABLE1.row("1"), 0, models=models), "contrastive", "r2") == []


def test_a_learning_curve_skips_what_was_not_a_number() -> None:
    models = {"contrastive": {"curve": {"step": [0, 10, 20], "r2": [0.5, None, 0.9]}}}
    receipt = made_up(TABLE1, TABLE1.row("1"), 0, models=models)
    assert learning_curve(receipt, "contrastive", "r2") == [(0, 0.5), (20, 0.9)]


# Sections


def test_fast_speaks_first_and_shows_all_rows(everything: Results) -> None:
    section = everything.sections[0]
    assert [found.budget for found in section.blocks] == ["fast", "paper"]
    assert len(section.main.shown) == 14 and section.main.missing == ("11", "12")
    assert [result.row.number for result in section.blocks[1].shown] == ["1", "5", "12"]
    assert any("Not run with this budget: rows 2, 3, 4" in remark for remark in section.blocks[1].remarks)


def test_an_experiment_without_receipts_is_there_as_not_run(everything: Results) -> None:
    last = next(one for one in everything.sections if one.experiment.id == "clica-workshop/synthetic-au")
    assert last.main.run == ()
    assert len(last.main.shown) == 4 and last.main.author_hours is None


def test_seconds_and_hours_are_those_of_the_receipts(everything: Results) -> None:
    found = block(everything, "clica/table1", "paper")
    assert (
        found.seconds == pytest.approx(sum(receipt.seconds for receipt in found.receipts)) and len(found.receipts) == 3
    )
    assert found.author_hours == (15.0, 30.0)
    smoke = gather([made_up(TABLE1, TABLE1.row("1"), 0, "smoke")])
    assert block(smoke, TABLE1.id, "smoke").author_hours is None
    assert hours_text((1234.0, 12.5)) == "1,234 to 12.5"


def test_verdicts_are_counted_good_ones_first(everything: Results) -> None:
    assert re.fullmatch(
        r"6 reproduced, 2 stay low as predicted, 1 short, 1 as it falls",
        block(everything, "clica/table2", "fast").tally,
    )
    assert block(everything, "clica/figure2", "fast").tally == "3 trends hold"
    assert block(everything, "clica/table1", "fast").tally.endswith("2 not run")


def test_where_rows_differ_each_value_names_its_rows() -> None:
    rows = [made_up(TABLE1, TABLE1.row(number), 0) for number in ("1", "2")]
    rows.append(made_up(TABLE1, TABLE1.row("5"), 0, device="cpu", commit=None))
    facts = dict(block(gather(rows), TABLE1.id, "fast").facts)
    assert facts["Device"] == "NVIDIA H200 (rows 1, 2); cpu (row 5)"
    assert facts["Commit"] == "0123456789 (rows 1, 2); not recorded (row 5)" and facts["Precision"] == "tf32"


def test_among_many_rows_those_that_agree_are_counted() -> None:
    figure = find("clica/figure2")
    rows = [made_up(figure, row, 0, commit="a" * 40 if k < 2 else COMMIT) for k, row in enumerate(figure.rows[:21])]
    facts = dict(block(gather(rows), figure.id, "fast").facts)
    assert facts["Commit"] == "aaaaaaaaaa (rows 1, 2); 0123456789 (19 rows)"


def test_receipts_with_other_settings_are_mentioned_not_averaged() -> None:
    row = TABLE1.row("1")
    old = [made_up(TABLE1, row, seed, config_hash="old", scores={"contrastive": {"r2": 0.1}}) for seed in range(2)]
    new = [made_up(TABLE1, row, seed) for seed in range(3)]
    again = made_up(TABLE1, row, 0)  # a seed trained twice with the same settings is no other setting
    found = block(gather([*old, *new, again]), TABLE1.id, "fast")
    stat = found.rows[0]["contrastive"].ours
    assert stat is not None and stat.seeds == 3 and stat.mean > 90
    assert found.other == {"1": 2} and any("2 of row 1" in remark for remark in found.remarks)


def test_rows_of_a_former_recipe_are_named() -> None:
    present = TABLE1.plan(TABLE1.row("2"), "fast", "cuda").config_hash
    rows = [made_up(TABLE1, TABLE1.row(n), 0, config_hash=made) for n, made in (("1", "old"), ("2", present))]
    found = block(gather(rows), TABLE1.id, "fast")
    assert found.former == ("1",) and "Made with an earlier recipe: row 1." in found.remarks


def test_notes_name_rows_as_they_are_written() -> None:
    ledger = Path(__file__).parents[2] / "results" / "aninfonce-figure3.jsonl"
    found = block(gather(read(ledger)), "aninfonce/figure3", "fast")
    assert any(remark.startswith("Rows C, D: all precisions differ") for remark in found.remarks)


def test_names_of_commits() -> None:
    assert commit_name(COMMIT) == "0123456789" and commit_name("v1.2-dirty") == "v1.2 with changes"
    assert commit_name(None) == "not recorded"


# RESULTS.md


def test_the_text_shows_ours_beside_the_paper_with_seeds_and_verdict(tmp_path: Path) -> None:
    scores = (0.9942, 0.9952, 0.9962)
    rows = [
        made_up(
            TABLE1, TABLE1.row("1"), seed, scores={"contrastive": {"r2": score}, "identity": {"r2": 0.2}}, seconds=2.0
        )
        for seed, score in enumerate(scores)
    ]
    lines = lines_of(markdown(gather(rows)), "## clica/table1")
    first, second = (line for line in lines if line.startswith("| 1 "))
    assert cells(first)[2:] == ["promises", "99.52 ± 0.10 (3)", "99.42 ± 0.05", "reproduced", "6.0"]
    assert cells(second) == ["1", "20.00 ± 0.00 (3)", "66.98 ± 2.79", "differs", "no score", "99.71 ± 0.05"]
    assert "- Device: NVIDIA H200" in lines and "- Commit: 0123456789" in lines
    assert sum("| not run" in line for line in lines) == 2 * 13


def test_budgets_are_apart_and_labelled(everything: Results) -> None:
    lines = lines_of(markdown(everything), "## clica/table1")
    headings = [line for line in lines if line.startswith("### ")]
    assert headings == ["### Budget fast: our recipe", "### Budget paper: the authors' protocol to the letter"]


def test_a_figure_has_its_points_the_trend_and_no_published_numbers(everything: Results) -> None:
    text = "\n".join(lines_of(markdown(everything), "## clica/figure2"))
    assert (
        text.count("trend holds.") == 3 and "prints no numbers" in text and "(concentration of the pairs: 10)" in text
    )
    assert len(re.findall(r"^\| \d+ ", text, flags=re.MULTILINE)) == 29
    mass = cells(next(line for line in text.splitlines() if line.startswith("| 9 ")))
    assert mass[1:3] == ["64", "99.7"]  # test_transport checks the number itself


def test_a_seed_that_diverged_is_named(everything: Results) -> None:
    text = markdown(everything)
    assert "- Row 3, seed 5: contrastive: The loss was not finite at step 812." in text


def test_the_same_receipts_give_the_same_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "clica/table1", "1,2", seeds=3)
    for receipt in read(path):
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        append(tmp_path / "elsewhere" / path.name, receipt)
    texts = {markdown(gather(load(folder)[0])) for folder in (tmp_path / "a", tmp_path / "a", tmp_path / "elsewhere")}
    assert len(texts) == 1
    text = texts.pop()
    assert text.startswith(MARK) and text.endswith("\n") and str(tmp_path) not in text


def test_links_at_a_glance_lead_to_headings(everything: Results) -> None:
    text = markdown(everything)
    named = {re.sub(r"[^a-z0-9 _-]", "", heading.lower()) for heading in re.findall(r"^## (.+)$", text, re.MULTILINE)}
    links = re.findall(r"\]\(#([^)]+)\)", text)
    missed = sum(len(found.misses) for section in everything.sections for found in section.blocks)
    assert len(links) == len(everything.sections) + 1 + missed and missed > 1 and set(links) <= named


def test_text_from_receipts_cannot_break_the_text() -> None:
    assert escape("a|b\n<i>*x86_64*") == r"a\|b \<i\>\*x86_64\*"
    strange = made_up(TABLE1, TABLE1.row("1"), 0, device="a | b\n# c", failed="x | y\n\n# z")
    text = markdown(gather([strange]))
    assert r"a \| b # c" in text and "\n# c" not in text and "\n# z" not in text


def test_a_table_lines_up() -> None:
    lines = table(("A", "Longer"), [("1", "x"), ("22|", "")], right=(1,)).splitlines()
    assert lines == ["| A    | Longer |", "|------|-------:|", "| 1    |      x |", r"| 22\| |      – |"]
    assert len({len(line) for line in lines}) == 1


def test_every_receipt_comes_back_from_its_ledger(tmp_path: Path) -> None:
    """The made-up receipts are what the ledger's own writer and reader take."""
    path = write(tmp_path, "clica/table2", "8", seeds=1)
    assert read(path) == (made_up(find("clica/table2"), find("clica/table2").row("8"), 0),)
    assert isinstance(read(path)[0], Receipt)
