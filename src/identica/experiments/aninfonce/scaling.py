"""Paper B, Figures 4, 8 and 9: what batch size, dimension and precision do to isotropic pairs.

The paper prints no numbers and does not say which dimensions and batches it took. Here the loss is InfoNCE with the
temperature that matches the pairs, τ = 1/Λ, so that nothing but the size of the problem is in the way; batches
go to 65,536, and one point to 262,144, beyond what the paper could run. A third panel of Figure 4 is ours: four times
that temperature, at which an anchor sees negatives from farther away. With the budget ``fast`` every point has
5,000 steps, and up to 40,000 where the question is whether high dimensions come back; with ``paper`` the 500,000 of
Figure 9.
``smoke`` has one batch size for all, so that points share models.
Figure 8, which follows two runs, has the batch and the steps of the budget; its dimension is not given, and is 20 here.
"""

from __future__ import annotations

from typing import Any

from identica.experiments.aninfonce.rows import Loss, LossExperiment, LossRow, Plot
from identica.experiments.claims import AtLeast, Quantity, Rises
from identica.experiments.laws import UNIFORM, fisher_bingham

R2 = Quantity("infonce", "r2")
#: The precision of Figure 9, and of the dimensions in Figure 4.
PRECISION = 75.0
_LARGEST = 262_144
#: 16 times as many pairs of codes a step as with batches of 65,536, so there are fewer steps.
_LARGEST_STEPS = 500
#: What the points that are given time have. In 80 dimensions also a wider encoder and Muon: 6,000 steps with these end
#: above 20,000 without (docs/folds.md).
_LONG: dict[int, dict[str, Any]] = {
    40: {"steps": 20_000},
    80: {"steps": 40_000, "optimizer": "muon", "lr": 3e-3, "width": 512},
}
#: Room for what seeds do to a point, in a claim that a curve rises.
_SLACK = 0.02


def point(dim: int, precision: float, batch: int, widened: float = 1.0, long: bool = False) -> LossRow:
    """Isotropic pairs in so many dimensions, batches of that size, ``widened`` times the matched temperature."""
    steps = _LONG[dim]["steps"] if long else _LARGEST_STEPS if batch == _LARGEST else 5000
    kind = {"precision": precision} if widened == 1.0 else {"widened": widened}
    if steps != 5000:  # its panels are those of points that were given other times
        kind = {"long": 1.0} if long else {"steps": steps}
    note = "to see whether so many dimensions come back, given time" if long else ""
    if long and "optimizer" in _LONG[dim]:
        note += "; with the budget fast by Muon, with an encoder twice as wide"
    return LossRow(
        _name(dim, precision, batch, widened, long),
        "sphere",
        UNIFORM,
        fisher_bingham(*[precision] * dim),
        {"infonce": Loss("dot", widened / precision)},
        theory="promises" if widened == 1.0 else "silent",
        x={"batch": batch, "dimension": dim, **kind},
        recipes={
            "smoke": {"candidates": 500},
            "fast": {
                "batch_size": batch,
                "candidates": 2500,
                "evaluations": 25,
                **(_LONG[dim] if long else {"steps": steps}),
            },
            "paper": {"batch_size": batch, "steps": 500_000, "evaluations": 250},
        },
        note=note,
    )


def _name(dim: int, precision: float, batch: int, widened: float = 1.0, long: bool = False) -> str:
    wide = "" if widened == 1.0 else f"-w{widened:g}"
    return f"d{dim}-p{precision:g}-b{batch}{wide}" + ("-long" if long else "")


# Figure 4

_BATCHES = (256, 1024, 4096, 16_384)
#: Where the batches above leave something to recover.
_BATCHES_HARD = (*_BATCHES, 65_536)
_DIMENSIONS, _DIMENSIONS_HARD = (10, 20, 40, 80), (20, 40, 80)
_PRECISIONS = (25.0, 50.0, PRECISION, 150.0)
_WIDENED = 4.0

FIGURE4 = LossExperiment(
    id="aninfonce/figure4",
    title="How large a batch identifiability takes",
    paper="B, Figure 4",
    metric="r2",
    rows=(
        *(
            point(dim, PRECISION, batch)
            for dim in _DIMENSIONS
            for batch in (_BATCHES_HARD if dim in _DIMENSIONS_HARD else _BATCHES)
        ),
        *(point(20, precision, batch) for precision in _PRECISIONS if precision != PRECISION for batch in _BATCHES),
        point(40, PRECISION, _LARGEST),
        *(point(dim, PRECISION, batch, _WIDENED) for dim in _DIMENSIONS_HARD for batch in _BATCHES),
        *(point(dim, PRECISION, _BATCHES[-1], _WIDENED, long=True) for dim in _LONG),
    ),
    models=("infonce",),
    seeds=1,
    trend="R² rises with the batch and falls with the dimension and with the precision",
    claims=(
        *(
            Rises(f"In {dim} dimensions R² rises with the batch", names, R2, _SLACK)
            for dim in _DIMENSIONS_HARD
            for names in [tuple(_name(dim, PRECISION, batch) for batch in _BATCHES_HARD)]
        ),
        Rises(
            "With batches of 1024 R² falls with the dimension",
            tuple(_name(dim, PRECISION, 1024) for dim in reversed(_DIMENSIONS)),
            R2,
            _SLACK,
        ),
        Rises(
            "In 20 dimensions with batches of 1024 R² falls with the precision",
            tuple(_name(20, precision, 1024) for precision in reversed(_PRECISIONS)),
            R2,
            _SLACK,
        ),
        *(
            Rises(
                f"In {dim} dimensions with batches of 1024 R² is higher at four times the matched temperature",
                (_name(dim, PRECISION, 1024), _name(dim, PRECISION, 1024, _WIDENED)),
                R2,
            )
            for dim in _DIMENSIONS_HARD
        ),
        *(
            AtLeast(
                f"{dim} dimensions come back, at four times the matched temperature and given time: R² ≥ 0.95",
                (_name(dim, PRECISION, _BATCHES[-1], _WIDENED, long=True),),
                R2,
                0.95,
            )
            for dim in _LONG
        ),
    ),
    plots=(
        Plot(f"Λ = {PRECISION:g}", "batch", (("R²", R2),), by="dimension", where={"precision": PRECISION}),
        Plot("20 dimensions", "batch", (("R²", R2),), by="precision", where={"dimension": 20}),
        Plot(
            f"Λ = {PRECISION:g}, four times the matched temperature",
            "batch",
            (("R²", R2),),
            by="dimension",
            where={"widened": _WIDENED},
        ),
        Plot(
            f"Do many dimensions come back? Λ = {PRECISION:g}, batches of {_BATCHES[-1]:,}",
            "dimension",
            (("R²", R2),),
            groups=(
                ("matched temperature", {"precision": PRECISION, "batch": _BATCHES[-1]}),
                ("four times it", {"widened": _WIDENED, "batch": _BATCHES[-1]}),
                ("four times it, given time", {"long": 1.0}),
            ),
        ),
        Plot(
            f"40 dimensions, Λ = {PRECISION:g}",
            "batch",
            (("R²", R2),),
            where={"dimension": 40},
            groups=(
                ("matched temperature", {"precision": PRECISION}),
                (f"matched, {_LARGEST_STEPS:,} steps", {"steps": _LARGEST_STEPS}),
                ("four times it", {"widened": _WIDENED}),
                ("four times it, given time", {"long": 1.0}),
            ),
        ),
    ),
)


# Figure 8

_FOLLOWED = (25.0, PRECISION)

FIGURE8 = LossExperiment(
    id="aninfonce/figure8",
    title="How learning goes on at two precisions",
    paper="B, Figure 8",
    metric="r2",
    rows=tuple(
        LossRow(
            f"p{precision:g}",
            "sphere",
            UNIFORM,
            fisher_bingham(*[precision] * 20),
            {"infonce": Loss("dot", 1.0 / precision)},
            theory="promises",
            x={"precision": precision},
            recipes={"fast": {"evaluations": 100}, "paper": {"evaluations": 300}},
        )
        for precision in _FOLLOWED
    ),
    models=("infonce",),
    seeds=3,
    dim=20,
    trend="R² rises in steps, later at the higher precision, where positives and negatives overlap less",
    claims=(
        Rises("R² = 0.9 takes more steps at Λ = 75 than at 25", ("p25", "p75"), Quantity("infonce", "steps_to_0.9")),
        Rises(
            "Similarities of positives and negatives overlap less at Λ = 75 than at 25",
            ("p75", "p25"),
            Quantity("infonce", "overlap"),
        ),
    ),
    plots=(
        Plot(
            "Steps to a target",
            "precision",
            tuple((f"R² = {target}", Quantity("infonce", f"steps_to_{target}")) for target in ("0.7", "0.8", "0.9")),
            y="steps",
        ),
    ),
    details=("p25", "p75"),
)


# Figure 9

_BATCHES_9 = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
_DIMENSIONS_9 = (5, 10, 20, 40, 80)
#: The batch at which the paper counts the steps to a target; it had 4000.
_COUNTED = 4096

FIGURE9 = LossExperiment(
    id="aninfonce/figure9",
    title="R² and the steps that it takes, by dimension and batch",
    paper="B, Figure 9",
    metric="r2",
    rows=tuple(point(dim, PRECISION, batch) for dim in _DIMENSIONS_9 for batch in _BATCHES_9),
    models=("infonce",),
    seeds=3,
    trend="R² falls with the dimension, larger batches help, and the steps to a target grow with the dimension",
    claims=(
        Rises(
            f"With batches of {_COUNTED} R² falls with the dimension",
            tuple(_name(dim, PRECISION, _COUNTED) for dim in reversed(_DIMENSIONS_9)),
            R2,
            _SLACK,
        ),
        Rises(
            "In 40 dimensions R² rises with the batch",
            tuple(_name(40, PRECISION, batch) for batch in _BATCHES_9),
            R2,
            _SLACK,
        ),
        # Untrained encoders may have 0.7 in 5 dimensions, and none comes to 0.9 in 40.
        Rises(
            f"With batches of {_COUNTED} the steps to R² = 0.9 grow from 5 to 20 dimensions",
            tuple(_name(dim, PRECISION, _COUNTED) for dim in (5, 10, 20)),
            Quantity("infonce", "steps_to_0.9"),
        ),
        Rises(
            f"With batches of {_COUNTED} the steps to R² = 0.7 grow from 20 to 80 dimensions",
            tuple(_name(dim, PRECISION, _COUNTED) for dim in (20, 40, 80)),
            Quantity("infonce", "steps_to_0.7"),
        ),
    ),
    plots=(
        Plot(f"Λ = {PRECISION:g}", "batch", (("R²", R2),), by="dimension"),
        Plot(
            f"Steps to a target, batches of {_COUNTED}",
            "dimension",
            tuple((f"R² = {target}", Quantity("infonce", f"steps_to_{target}")) for target in ("0.7", "0.8", "0.9")),
            y="steps",
            where={"batch": _COUNTED},
        ),
    ),
)

EXPERIMENTS = (FIGURE4, FIGURE8, FIGURE9)
