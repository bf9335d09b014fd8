"""RESULTS.md: ours beside the papers', as text. The same receipts give the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from identica.experiments import RowResult, ledger_path
from identica.experiments.catalogue import METRICS, PAPERS, Model, Published
from identica.experiments.clica.transport import transported_mass
from identica.experiments.receipts.verdicts import CurveResult
from identica.report.loss_table import WORDS, headings, table_rows
from identica.report.results import NO_SCORE, NOT_RUN, Block, Results, Section, authors_say, hours_text, seconds_text
from identica.report.units import found_text

#: The first words of every such file, by which we know that it may be written over.
MARK = "<!-- Made by `identica report`"

_HEAD = f"""\
{MARK} from the receipts in results/. What is changed here by hand is lost with the next report. -->

# Results

Ours beside the papers'. Every number is computed from the receipts in `results/*.jsonl`, one line for each row and
seed, and from nothing else. To make this file again, and a web page with figures and learning curves:

```sh
identica report
```

Scores are in percent: mean ± standard deviation, and in brackets the number of seeds. Verdicts follow
[one rule](docs/experiments.md#the-verdicts), and the budgets are described [there](docs/experiments.md#budgets) too.
Seconds are those of all seeds of a row, baselines included. Seeds are trained together and each counts its share; a
model that several rows have in common counts once.
"""


def markdown(results: Results) -> str:
    """The whole file."""
    parts = [_HEAD, "## At a glance\n", _glance(results.sections), *_papers(results), *_misses(results.sections)]
    for section in results.sections:
        parts += _section(section)
    if results.left_out:
        parts += ["## Left out\n", *(f"- {escape(sentence)}" for sentence in results.left_out), ""]
    return "\n".join(parts)


def _glance(sections: Sequence[Section]) -> str:
    rows = []
    for block in (block for section in sections for block in section.blocks):
        ran = f"{len(block.run)} of {len(block.rows)}"
        authors = block.author_hours
        rows.append(
            (
                f"[{block.experiment.id}](#{_anchor(block)})",
                escape(block.budget) or "–",
                ran if block.run else NOT_RUN,
                block.tally if block.run else "–",
                seconds_text(block.seconds) if block.run else "–",
                "–" if authors is None else hours_text(authors),
            )
        )
    headings = ("Experiment", "Budget", "Rows", "Verdicts", "Our seconds", "The authors' GPU-hours for as many runs")
    return table(headings, rows, right=(4, 5))


def _papers(results: Results) -> list[str]:
    cited = dict.fromkeys(section.experiment.paper.split(",")[0] for section in results.sections)
    lines = [f"{name}: {PAPERS[name]}." for name in cited if name in PAPERS]
    return [*(f"- {escape(line)}" for line in (*lines, *authors_say(results))), ""]


def _misses(sections: Sequence[Section]) -> list[str]:
    """What did not come out as the papers have it, so that nobody has to look for it."""
    rows = [
        (f"[{block.experiment.id}](#{_anchor(block)})", escape(block.budget), escape(what), how)
        for block in (block for section in sections for block in section.blocks)
        for what, how in block.misses
    ]
    return ["### What did not come out\n", table(("Experiment", "Budget", "What", "Verdict"), rows)] if rows else []


def _section(section: Section) -> list[str]:
    experiment = section.experiment
    parts = [f"## {_heading(section.main)}\n"]
    told = f"{experiment.title}. {experiment.paper}, {METRICS[experiment.metric]} in percent."
    if experiment.trend:
        numbers = "few numbers" if any(row.published for row in experiment.rows) else "no numbers"
        told += f" The paper prints {numbers}; what it describes: {experiment.trend}."
    parts.append(told + "\n")
    for block in section.blocks:
        parts += _block(block)
    return parts


def _block(block: Block) -> list[str]:
    if not block.run:
        parts = ["### Not run\n"]
    else:
        parts = [f"### Budget {escape(block.budget)}{f': {block.purpose}' if block.purpose else ''}\n"]
        parts += [f"- {name}: {escape(value)}" for name, value in block.facts]
        ledger = ledger_path("", block.experiment.id)
        count = f"{len(block.receipts)} receipt{'s' if len(block.receipts) != 1 else ''}"
        parts.append(f"- {count}, {seconds_text(block.seconds)} seconds: `{ledger}`\n")
    if block.experiment.curves:
        for curve in block.curves:
            parts += _curve(block, curve)
    elif block.is_table:
        parts += [*_tables(block), *_claims(block)]
    else:
        parts += [*_claims(block), *_points(block)]
    parts += [f"- {escape(remark)}" for remark in block.remarks]
    return [*parts, ""] if block.remarks else parts


def _tables(block: Block) -> list[str]:
    """The contrastive model, then what it is compared with."""
    models = block.experiment.models
    parts = []
    if "contrastive" in models:
        headings = ("Row", "Latents, pairs → model", "Theory", "Ours", "Paper", "Verdict", "Seconds")
        parts.append(table(headings, [_contrastive(block, result) for result in block.shown], right=(6,)))
    others: list[Model] = [model for model in models if model != "contrastive"]
    if others:
        columns = [f"{model.capitalize()}: {what}" for model in others for what in ("ours", "paper", "verdict")]
        rows = [
            (result.row.number, *(text for model in others for text in _cell(result, model))) for result in block.shown
        ]
        entries = list(zip(("Row", *columns), *rows, strict=True))
        filled = [column for column in entries if set(column[1:]) != {"–"}]
        parts.append(table([column[0] for column in filled], zip(*(column[1:] for column in filled), strict=True)))
    return parts


def _claims(block: Block) -> list[str]:
    """What must be shown, the number that decided it, and whether it holds."""
    claims = [
        (one.claim.says, found_text(one), one.verdict.text if one.verdict else block.unjudged(one))
        for one in block.claims
    ]
    return [table(("To be shown", "Found", "Verdict"), claims, right=(1,))] if claims else []


def _points(block: Block) -> list[str]:
    """The numbers of a figure."""
    named = headings(block)
    right = [k for k, name in enumerate(named) if name not in WORDS]
    rows = ([text if isinstance(text, str) else text.text for text in line] for line in table_rows(block))
    return [table(named, rows, right=right)] if block.run else []


def _contrastive(block: Block, result: RowResult) -> tuple[str, ...]:
    row = result.row
    theory = row.theory if row.theory != "silent" else "–"
    seconds = seconds_text(block.seconds_of(result)) if result.receipts else "–"
    return row.number, row.label, theory, *_cell(result, "contrastive"), seconds


def _cell(result: RowResult, model: Model) -> tuple[str, str, str]:
    """Ours, the paper's, the verdict."""
    cell = result[model]
    return ours(result, model), paper(cell.published), cell.verdict.text if cell.verdict else "–"


def _curve(block: Block, curve: CurveResult) -> list[str]:
    """A curve's points and its trend; the mass to move is computed from the marginal alone."""
    first = curve.points[0].row
    name = next(iter(first.x), "x")
    trend = trend_of(curve)
    points = [point for point in curve.points if block.complete or point.receipts]
    rows = [
        (
            point.row.number,
            f"{point.row.x.get(name, 0.0):g}",
            f"{mass:.1f}" if (mass := mass_to_move(point, block.experiment.dim)) is not None else "–",
            ours(point, "contrastive"),
            seconds_text(block.seconds_of(point)) if point.receipts else "–",
        )
        for point in points
    ]
    headings = ("Point", f"{name.capitalize()} of the marginal", "Mass to move [%]", "Ours", "Seconds")
    title = f"**{curve.name[:1].upper()}{curve.name[1:]}** ({name} of the pairs: {first.conditional.tightness:g})"
    return [f"{title}: {escape(trend)}.\n", table(headings, rows, right=(1, 2, 4))]


# Words, also for the web page


def ours(result: RowResult, model: Model) -> str:
    """``99.42 ± 0.05 (5)``; without a score, why."""
    stat = result[model].ours
    if stat is None:
        return NO_SCORE if result.receipts else NOT_RUN
    return f"{stat} ({stat.seeds})"


def paper(published: Published | None) -> str:
    """The paper's figure as it prints it."""
    return "–" if published is None else str(published)


def trend_of(curve: CurveResult) -> str:
    """What there is to say of a curve as a whole."""
    if curve.verdict:
        return curve.verdict.text
    run = any(point.receipts for point in curve.points)
    return "nothing to judge without points at both ends" if run else NOT_RUN


def mass_to_move(point: RowResult, dim: int) -> float | None:
    """½∫|p − uniform| in percent; None for a marginal it is not known for."""
    try:
        return 100.0 * transported_mass(point.row, dim)
    except ValueError:
        return None


def _heading(block: Block) -> str:
    return block.experiment.id


def _anchor(block: Block) -> str:
    """As GitHub names the link to a heading: without punctuation but hyphens."""
    return "".join(letter for letter in _heading(block).lower() if letter.isalnum() or letter in "-_")


def escape(text: str) -> str:
    """Text that means itself in Markdown, on one line."""
    text = re.sub(r"[\\`*<>|\[\]]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)
    return " ".join(text.split())


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A Markdown table, its columns as wide as their widest entry; ``right``: the columns set flush right."""
    lines = [list(headings), *(["–" if not text else text.replace("|", "\\|") for text in row] for row in rows)]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(headings))]

    def drawn(line: Sequence[str]) -> str:
        cells = (
            text.rjust(width) if i in right else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        return f"| {' | '.join(cells)} |"

    rule = "|".join(f"{'-' * (width + 1)}:" if i in right else "-" * (width + 2) for i, width in enumerate(widths))
    return "\n".join([drawn(lines[0]), f"|{rule}|", *map(drawn, lines[1:]), ""])
