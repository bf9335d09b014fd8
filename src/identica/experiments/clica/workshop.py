"""The workshop version of paper A: alignment and uniformity as two losses.

L_AU(½, p) is half of what InfoNCE with −‖·‖_p^p becomes for many negatives, less a constant (A, Prop. 3), so
theory says of it what it says of InfoNCE. The paper reports it on images only; the rows here have the pairs,
model space and p of rows 1, 3, 4 and 5 of A's Table 2, and no published figure of their own.

Two settings are ours. The codes live in a box of fixed sides 1/λ: L_AU has no temperature, and on codes that may
grow it has no floor (10-d, batch 1024, Laplace pairs of scale 0.05: within 1200 steps the standard deviation of
an unbounded code was 4e12, and that of a box with learned sides 2e3, where the truth has 5.8). And unbounded
codes, for the same reason, are left out.
"""

from __future__ import annotations

from identica.experiments.catalogue import Experiment, Row
from identica.experiments.laws import UNIFORM, generalized_normal, laplace, normal

SYNTHETIC_AU = Experiment(
    id="clica-workshop/synthetic-au",
    title="L_AU(½, p) on the box: the two halves of the loss",
    paper="W, Sec. A.6.1",
    metric="mcc",
    rows=(
        Row("1", "box", UNIFORM, laplace(0.05), "box", laplace(), match=True, theory="promises", alpha=0.5),
        Row("2", "box", UNIFORM, normal(0.05), "box", normal(), alpha=0.5),
        Row("3", "box", UNIFORM, laplace(0.05), "box", normal(), alpha=0.5),
        Row("4", "box", UNIFORM, generalized_normal(3, 0.05), "box", laplace(), alpha=0.5),
    ),
    models=("contrastive",),
)

EXPERIMENTS = (SYNTHETIC_AU,)
