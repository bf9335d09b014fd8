"""On a GPU: pictures are drawn inside the captured step, whatever the pairs, for a ResNet in half precision."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from identica.experiments.running.runner import train_model
from identica.experiments.three_d_ident.budgets import RECIPES, Resolution
from identica.experiments.three_d_ident.plan import ImagePlan
from identica.experiments.three_d_ident.tables import TABLE4

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

RECIPE = replace(
    RECIPES.by_budget["smoke"]["cuda"],
    resolutions=(Resolution(16, 12, 1e-3, pool=64, refresh=8), Resolution(32, 8, 1e-3, "cosine", pool=32)),
    precision="bf16",
    rendered=512,
)


#: What factors that are hard to see need.
HARD = {"optimizer": "muon", "scaffold": 4, "decorrelation": 0.1}


def plan_of(number: str, changes: dict[str, Any]) -> ImagePlan:
    plan = TABLE4.plan(TABLE4.row(number), "smoke", "cuda")
    assert isinstance(plan, ImagePlan)
    return replace(plan, recipe=replace(RECIPE, **changes))


@pytest.mark.parametrize(
    ("number", "model", "changes"),
    [
        ("1", "contrastive", {}),
        ("1b", "contrastive", {}),
        ("1b", "contrastive", HARD),
        ("5", "contrastive", {}),
        ("1", "supervised", {}),
    ],
)
def test_stages_of_image_sizes_are_captured(number: str, model: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Snapped, exact and augmented pairs, and latents for supervision; each size is captured and scored."""
    device = torch.device("cuda")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*(captured|take turns).*")
        results = train_model(
            plan_of(number, changes),
            model,  # type: ignore[arg-type]
            [0],
            device=device,
            folder=tmp_path,
        )
    result = results[0]
    assert result.failed is None and result.info["steps"] == 20
    assert {"r2", "mcc", "r2_train", "mcc_train"} <= set(result.scores)
    assert len(result.info["recovered"]["true"]) == 128
