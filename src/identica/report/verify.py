"""The page of ``identica verify``: every claim, what was measured, and the pictures that go with it."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from markupsafe import Markup

from identica._version import __version__
from identica.diagnostics.theory import Check
from identica.diagnostics.theory.check import Topic, short
from identica.report.page import render
from identica.report.theory_charts import picture
from identica.training.checkpoint import write_atomically

#: The questions, in the order of the argument: a title and what is asked, in a few sentences.
TOPICS: dict[Topic, tuple[str, str]] = {
    "limit": (
        "The loss becomes a cross-entropy",
        "InfoNCE asks an encoder to pick the positive among M negatives. As M grows, its loss, less log M and plus the "
        "log of the volume of the latent space, becomes the cross-entropy between how pairs really arise, p(z̃|z), and "
        "how the encoder believes they do, q_h(z̃|z) ∝ exp u(h(z), h(z̃)). That holds for every encoder, so it is tested "
        "on known maps: the true latents, and a bent copy of them that no training would find.",
    ),
    "positive": (
        "The positive may leave the denominator",
        "Some losses count only the negatives in the denominator. One term among M + 1 cannot matter in the limit, and "
        "how much it matters before can be computed.",
    ),
    "isometry": (
        "The minimiser keeps the similarity",
        "A cross-entropy is smallest when both densities agree. Then u(h(z), h(z̃)) must be the log-density of the "
        "pairs: what is close is mapped to what is equally close. Trained encoders come as near to it as their loss "
        "comes to the smallest possible: the distortion follows √(2 · excess) from the first step to the last.",
    ),
    "group": (
        "What keeps the similarity is linear",
        "Few maps keep all dot products or all distances. On the sphere they are the orthogonal ones, on a convex body "
        "the affine isometries, and for Lα distances other than L2 only those that reorder, flip and rescale the axes. "
        "The encoders saw the latents through a smooth nonlinear mixing, and pairs were all they had.",
    ),
    "uniformity": (
        "Uniformity keeps the map one-to-one",
        "The denominator spreads the codes out. At the minimiser they are uniform, and a smooth map of the sphere with "
        "uniform codes cannot fold: it covers the sphere exactly once.",
    ),
    "marginal": (
        "When the marginal is not uniform",
        "The limit of the loss is then no cross-entropy any more. With the largest and the smallest density of the "
        "marginal it still encloses one, the more tightly the more uniform the marginal is.",
    ),
    "mismatch": (
        "A wrong similarity breaks what it must, and nothing else",
        "Squared L2 distances do not see rotations. With codes in all of R^N nothing stops them: isometry and affinity "
        "survive, the axes do not. With another power than the pairs' own the densities cannot agree at all, and the "
        "smallest possible loss is out of reach of every map.",
    ),
}


@dataclass(frozen=True)
class _Section:
    """One question, as the template wants it."""

    topic: str
    title: str
    text: str
    checks: list[Check]


def write_verify_report(
    checks: Sequence[Check], path: Path, *, facts: Sequence[tuple[str, str]] = (), seconds: float = 0.0
) -> Path:
    """Write the page to ``path`` and return it. ``facts`` are further rows for the table at its end."""
    sections = [
        _Section(topic, title, text, [check for check in checks if check.topic == topic])
        for topic, (title, text) in TOPICS.items()
    ]
    page = render(
        "verify.html",
        title="The theorems, measured",
        lead=(
            "Why contrastive learning can recover the factors behind the data is proved in two papers. Here every step "
            "of the argument is a number: what the theorem predicts, what was measured, and how far apart they may be."
        ),
        checks=list(checks),
        held=sum(check.holds for check in checks),
        seconds=seconds,
        sections=[section for section in sections if section.checks],
        facts=[*facts, *_versions()],
        picture=lambda curve: Markup(picture(curve)),
        short=short,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page.encode("utf-8"))
    return path


def _versions() -> list[tuple[str, str]]:
    threads = torch.get_num_threads()
    return [
        ("Computed on", f"the CPU, {threads} thread{'' if threads == 1 else 's'}"),
        ("Versions", f"identica {__version__}, torch {torch.__version__}, Python {platform.python_version()}"),
    ]
