"""The catalogue says what the papers' tables say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from identica.experiments import Experiment, Published, Row, catalogue, find
from identica.experiments.clica.tables import FIGURE2, TABLE1, TABLE2
from identica.experiments.clica.workshop import SYNTHETIC_AU
from identica.experiments.laws import UNIFORM, Law, generalized_normal, laplace, normal, vmf

# Typed from the tables a second time: row, contrastive mean and deviation.
CONTRASTIVE_1 = [99.42, 99.86, 99.91, 99.86, 99.60, 99.64, 99.70, 99.69, 99.02, 99.02, 98.13, 98.13, 98.76, 98.76]
DEVIATION_1 = [0.05, 0.01, 0.01, 0.00, 0.02, 0.02, 0.02, 0.02, 0.01, 0.02, 0.14, 0.14, 0.03, 0.03]
CONTRASTIVE_2 = [98.62, 99.90, 99.77, 99.76, 98.80, 98.57, 99.85, 58.26, 59.67, 43.80]
DEVIATION_2 = [0.05, 0.06, 0.01, 0.02, 0.02, 0.02, 0.01, 3.00, 2.33, 2.15]


def figures(experiment: Experiment, model: str) -> list[tuple[float, float]]:
    return [(row.published[model].mean, row.published[model].sd) for row in experiment.rows]  # type: ignore[index]


def test_the_contrastive_figures_are_those_of_the_tables() -> None:
    assert figures(TABLE1, "contrastive") == list(zip(CONTRASTIVE_1, DEVIATION_1, strict=True))
    assert figures(TABLE2, "contrastive") == list(zip(CONTRASTIVE_2, DEVIATION_2, strict=True))


def test_the_baselines_are_shared_as_the_ditto_marks_say() -> None:
    identity = [66.98] * 4 + [67.93] * 4 + [63.37] * 2 + [62.49] * 2 + [63.57] * 2
    assert [mean for mean, _ in figures(TABLE1, "identity")] == identity
    supervised = [99.71] * 4 + [99.78] * 4 + [99.70] * 2 + [99.65] * 2 + [99.61] * 2
    assert [mean for mean, _ in figures(TABLE1, "supervised")] == supervised
    assert set(figures(TABLE2, "identity")) == {(46.55, 1.34)}
    assert [mean for mean, _ in figures(TABLE2, "supervised")] == [99.93] * 5 + [99.97] * 5


@pytest.mark.parametrize(
    ("experiment", "number", "space", "marginal", "conditional", "model_space", "model"),
    [
        (TABLE1, "1", "sphere", UNIFORM, vmf(1), "sphere", vmf(1)),
        (TABLE1, "3", "sphere", UNIFORM, laplace(0.05), "sphere", vmf(1)),
        (TABLE1, "8", "box", UNIFORM, normal(0.05), "unbounded", generalized_normal(3)),
        (TABLE1, "10", "sphere", normal(1.0), normal(0.05), "sphere", vmf(1)),
        (TABLE1, "11", "unbounded", laplace(1.0), normal(1.0), "unbounded", normal()),
        (TABLE1, "12b", "unbounded", normal(1.0), normal(0.05), "unbounded", normal()),
        (TABLE2, "5", "box", UNIFORM, generalized_normal(3, 0.05), "box", laplace()),
        (TABLE2, "10", "box", UNIFORM, normal(0.05), "unbounded", generalized_normal(3)),
    ],
)
def test_settings(
    experiment: Experiment, number: str, space: str, marginal: Law, conditional: Law, model_space: str, model: Law
) -> None:
    row = experiment.row(number)
    assert (row.space, row.marginal, row.conditional) == (space, marginal, conditional)
    assert (row.model_space, row.model) == (model_space, model)


def test_what_theory_says() -> None:
    assert [row.number for row in TABLE1.rows if row.theory != "silent"] == ["1"] == _matched(TABLE1)
    assert [row.number for row in TABLE2.rows if row.theory == "forbids"] == ["8", "9"]
    assert [row.number for row in TABLE2.rows if row.theory == "promises"] == ["1", "2"] == _matched(TABLE2)


def _matched(experiment: Experiment) -> list[str]:
    return [row.number for row in experiment.rows if row.match]


def test_both_readings_of_a_row_are_labelled() -> None:
    for number in ("11", "12"):
        printed, coded = TABLE1.row(number), TABLE1.row(f"{number}b")
        assert printed.conditional.scale == 1.0 and coded.conditional.scale == 0.05
        assert printed.note and coded.note and printed.note != coded.note
        assert printed.published == coded.published


def test_the_figure_has_its_curves_and_points() -> None:
    assert len(FIGURE2.curves) == 3
    for curve in FIGURE2.curves:
        rows = [row for row in FIGURE2.rows if row.curve == curve]
        positions = [next(iter(row.x.values())) for row in rows]
        assert len(rows) >= 9 and positions == sorted(positions) and positions[0] == 2.0**-6
        assert positions[-1] == (2.0**10 if "box" in curve else 2.0**6)
        assert [row.marginal.tightness for row in rows] == pytest.approx(positions)
        assert positions[0] < rows[0].conditional.tightness < positions[-1]
    assert not any(row.published for row in FIGURE2.rows)


def test_the_workshop_loss_is_on_the_box_with_p_1_and_2() -> None:
    assert {row.alpha for row in SYNTHETIC_AU.rows} == {0.5}
    assert {row.model_space for row in SYNTHETIC_AU.rows} == {"box"}
    assert {row.model.family for row in SYNTHETIC_AU.rows} == {"laplace", "normal"}


def test_ids_are_unique_and_found() -> None:
    ids = [experiment.id for experiment in catalogue()]
    assert len(set(ids)) == len(ids)
    assert all(find(experiment.id) is experiment for experiment in catalogue())
    with pytest.raises(ValueError, match=r"No such experiment 'clica/table9'. Did you mean 'clica/table\d'\?"):
        find("clica/table9")
    with pytest.raises(ValueError, match="There are: clica/table1.*identica catalog"):
        find("banana")


def test_experiments_come_in_the_papers_order() -> None:
    ids = [experiment.id for experiment in catalogue()]
    first = [f"clica/{name}" for name in ("table1", "table2", "figure2", "table4", "table5")]
    figures = [f"aninfonce/figure{number}" for number in (2, 3, 4, 6, 7, 8, 9, 10, 11, 12)]
    assert ids == [*first, "clica-workshop/synthetic-au", *figures, "aninfonce/mnist-views"]


def test_rows_are_selected_in_the_tables_order() -> None:
    assert [row.number for row in TABLE1.select(["11b", "2"])] == ["2", "11b"]
    assert TABLE1.select(None) == TABLE1.rows
    with pytest.raises(ValueError, match="clica/table1 has no row '13'. Its rows are 1, 2, .*12b"):
        TABLE1.select(["1", "13"])


def test_a_number_cannot_be_given_twice() -> None:
    row = Row("1", "box", UNIFORM, laplace(0.05), "box", laplace(), published={"contrastive": Published(99.0, 0.1)})
    with pytest.raises(ValueError, match="more than one row 1"):
        Experiment("x/y", "x", "A", "mcc", (row, row))


def test_reading_needs_no_torch() -> None:
    code = "import sys, identica.experiments as e; e.catalogue(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_laws_without_a_scale_say_so() -> None:
    with pytest.raises(ValueError, match="Normal is not a .* law with a scale"):
        _ = normal().width_and_power
    with pytest.raises(ValueError, match="has no scale"):
        _ = laplace().tightness
    assert vmf(10).to_dict() == {"family": "vmf", "concentration": 10.0}
