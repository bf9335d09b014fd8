"""Paper B on MNIST: Figure 3, the views of Section G, and Figure 7. The data are the user's: see ``--data``.

What the text leaves open, and what is taken here:

- Figure 3 prints no value of its three Λ₂. Here 25, 50 and 100, beside Λ₁ = 5.
- InfoNCE's temperature is not given; τ = 1, as in Figure 2.
- The contrastive encoder is not described, except that it has no projection head: codes are its last layer.
"""

from __future__ import annotations

from collections.abc import Iterator

from identica.experiments.aninfonce.figures import ANISOTROPIC, BASELINE
from identica.experiments.aninfonce.rows import Loss, LossRow, Plot
from identica.experiments.catalogue import Cost, Model, Published
from identica.experiments.claims import Above, AtLeast, AtMost, Quantity
from identica.experiments.laws import DIGITS, UNIFORM, VIEWS, fisher_bingham
from identica.experiments.mnist.rows import DIM, ComputedRow, MnistExperiment, ViewsRow

_BOTH: dict[Model, Loss] = {"aninfonce": ANISOTROPIC, "infonce": BASELINE}
_NAMES: tuple[tuple[str, Model], ...] = (("AnInfoNCE", "aninfonce"), ("InfoNCE", "infonce"))


def _an(score: str) -> Quantity:
    return Quantity("aninfonce", score)


def _in(score: str) -> Quantity:
    return Quantity("infonce", score)


def _lines(score: str) -> tuple[tuple[str, Quantity], ...]:
    return tuple((name, Quantity(model, score)) for name, model in _NAMES)


# Figure 3

SECOND = (25.0, 50.0, 100.0)
_BLOCKS = ("1", "2", "3")


def _linear(last: float) -> tuple[float, ...]:
    return tuple(5.0 + (last - 5.0) * k / (DIM - 1) for k in range(DIM))


def _figure3() -> Iterator[LossRow]:
    for number, second in zip(_BLOCKS, SECOND, strict=True):
        precision = fisher_bingham(*[5.0] * (DIM // 2), *[second] * (DIM // 2))
        yield LossRow(number, "sphere", UNIFORM, precision, _BOTH, theory="promises", x={"precision": second})
    for number, last, ours, theirs in (("C", 50.0, 99.7, 77.4), ("D", 200.0, 99.6, 76.3)):
        yield LossRow(
            number,
            "sphere",
            UNIFORM,
            fisher_bingham(*_linear(last)),
            _BOTH,
            theory="promises",
            published={"aninfonce": Published(ours, seeds=1), "infonce": Published(theirs, seeds=1)},
            note="all precisions differ, so that single factors are promised",
        )


FIGURE3 = MnistExperiment(
    id="aninfonce/figure3",
    title="Digits that a VAE makes of known latents",
    paper="B, Figure 3",
    metric="r2",
    rows=tuple(_figure3()),
    models=("aninfonce", "infonce"),
    seeds=3,
    trend="AnInfoNCE recovers content and style and learns Λ; InfoNCE loses the style, and classes with it",
    claims=(
        AtLeast("AnInfoNCE recovers content: R² ≥ 0.99", _BLOCKS, _an("content_r2"), 0.99),
        AtLeast("AnInfoNCE recovers style: R² ≥ 0.99", _BLOCKS, _an("style_r2"), 0.99),
        AtMost("InfoNCE at τ = 1 loses style: R² ≤ 0.5", _BLOCKS, _in("style_r2"), 0.5),
        Above(
            "Neighbours among real digits are of one class more often with AnInfoNCE",
            _BLOCKS,
            _an("knn_accuracy"),
            _in("knn_accuracy"),
        ),
        AtLeast("With Λ from 5 to 50 AnInfoNCE recovers all: R² ≥ 0.997", ("C",), _an("r2"), 0.997),
        AtLeast("With Λ from 5 to 200 AnInfoNCE recovers all: R² ≥ 0.996", ("D",), _an("r2"), 0.996),
        AtMost("With these InfoNCE at τ = 1 does not: R² ≤ 0.9", ("C", "D"), _in("r2"), 0.9),
        AtMost(
            "With these every entry of Λ̂ below Λ = 100 is within 2 %, on average over seeds",
            ("C", "D"),
            _an("moderate_precision_error"),
            0.02,
        ),
    ),
    plots=(
        Plot(
            "Content and style",
            "precision",
            tuple(
                (f"{name}, {group}", Quantity(model, f"{group}_r2"))
                for name, model in _NAMES
                for group in ("content", "style")
            ),
        ),
        Plot("Neighbours among real digits", "precision", _lines("knn_accuracy"), y="accuracy"),
    ),
    details=("C", "D"),
    columns=(("KNN", "knn_accuracy"),),
    # 80 hours for eight runs, up to ten each; those of Figure 3 converge within one.
    cost=Cost((1.0, 10.0), "GPU (which one is not said)"),
)


# Section G: SimCLR's views without colour. The table does not say what its R² is of: here, as in Figure 3, of the
# latents of images that the VAE of plain digits makes. That of the VAE's latents of real digits is ``image_r2``.

_TABLE: dict[Model, dict[str, float]] = {
    "infonce": {"class_accuracy": 0.97, "r2": 0.34, "crop_accuracy": 0.53, "blur_accuracy": 0.58},
    "aninfonce": {"class_accuracy": 0.94, "r2": 0.44, "crop_accuracy": 0.59, "blur_accuracy": 0.63},
}
#: InfoNCE's temperatures by row: what it keeps depends on them.
_TEMPERATURES = {"1": BASELINE, "tau-0.2": Loss("dot", 0.2), "tau-learned": Loss("dot", learned=True)}


def _signs(row: str, where: str) -> Iterator[Above]:
    """The trade-off: which loss has more of what."""
    yield Above(
        f"The class is read off better with InfoNCE{where}", (row,), _in("class_accuracy"), _an("class_accuracy")
    )
    for what, score in (("R²", "r2"), ("The readout of crops", "crop_accuracy"), ("That of blurs", "blur_accuracy")):
        yield Above(f"{what} is higher with AnInfoNCE{where}", (row,), _an(score), _in(score))


MNIST_VIEWS = MnistExperiment(
    id="aninfonce/mnist-views",
    title="Augmented views of real digits",
    paper="B, Section G",
    metric="r2",
    rows=tuple(
        ViewsRow(
            number,
            "sphere",
            DIGITS,
            VIEWS,
            {"aninfonce": ANISOTROPIC, "infonce": loss},
            published={model: Published(round(100 * scores["r2"], 1), seeds=1) for model, scores in _TABLE.items()},
            table=_TABLE,
        )
        for number, loss in _TEMPERATURES.items()
    ),
    models=("aninfonce", "infonce"),
    seeds=3,
    trend="AnInfoNCE knows more of the latents and of the augmentations, and less of the class",
    claims=(*_signs("1", ", τ = 1"), *_signs("tau-learned", ", τ learned")),
    details=("1",),
    columns=(
        ("Class", "class_accuracy"),
        ("Crop", "crop_accuracy"),
        ("Blur", "blur_accuracy"),
        ("KNN", "knn_accuracy"),
        ("R² of real digits", "image_r2"),
    ),
    cost=Cost((10.0, 10.0), "GPU (which one is not said)"),
)


# Figure 7, with the classifier that Figure 6 mentions and the neighbours of Section H.1.

FIGURE7 = MnistExperiment(
    id="aninfonce/figure7",
    title="Augmented digits in the latents of a VAE",
    paper="B, Figure 7",
    metric="share",
    rows=(
        ComputedRow(
            "latents",
            "unbounded",
            DIGITS,
            VIEWS,
            {},
            views="crops and flips",
            measured={"vae": "latents that are not normal"},
            note="of the views of single test digits, the share of latents that no normal law explains",
        ),
        ComputedRow(
            "domain",
            "unbounded",
            DIGITS,
            VIEWS,
            {},
            views="crops and blurs",
            measured={"classifier": "views told from plain digits"},
            published={"classifier": Published(99.1, seeds=1)},
            note="accuracy of a classifier on views of one half of the digits and plain ones of the other; chance is ½",
        ),
        ViewsRow(
            "neighbours",
            "sphere",
            DIGITS,
            VIEWS,
            # The paper does not say which temperature; a learned one falls to 0.001, where neighbours get worse.
            {"infonce": Loss("dot", 0.2)},
            views="crops and flips",
            published={"infonce": Published(96.7, seeds=1)},
            note="how often the nearest codes have the class of a digit, with an encoder trained on these views",
        ),
    ),
    models=("vae", "classifier", "infonce"),
    seeds=3,
    trend="latents of one digit's views are not normal and can have two modes; views can be told from plain digits",
    claims=(
        AtLeast("Most latents of a digit's views are not normal", ("latents",), Quantity("vae", "share"), 0.5),
        AtLeast("Some have more than one mode: at least 1 %", ("latents",), Quantity("vae", "bimodal"), 0.01),
        Above(
            "Latents of all digits together are closer to normal",
            ("latents",),
            Quantity("vae", "kolmogorov"),
            Quantity("vae", "marginal_kolmogorov"),
        ),
        AtLeast(
            "A classifier tells views from plain digits: accuracy ≥ 0.98",
            ("domain",),
            Quantity("classifier", "share"),
            0.98,
        ),
        AtLeast("With such views neighbours are of one class: ≥ 0.95", ("neighbours",), _in("share"), 0.95),
    ),
    columns=(
        ("Two modes", "bimodal"),
        ("Largest dip", "largest_dip"),
        ("From normal", "kolmogorov"),
        ("All digits from normal", "marginal_kolmogorov"),
    ),
)

EXPERIMENTS = (FIGURE3, MNIST_VIEWS, FIGURE7)
