from __future__ import annotations

import dataclasses
import pickle

import pytest

from identica.metrics import BlockScore, MatchedScore, Null, Score

NULL = Null(0.1, 0.2, 1 / 201, 200)
SCORES = [
    Score(0.5, (0.4, 0.6), 100, "linear R²", NULL),
    MatchedScore(0.5, (0.5, 0.5), 100, "MCC, pearson", None, assignment=(1, None)),
    BlockScore(0.5, (0.4, 0.6), 100, "blocks", None, per_block={"content": 0.4, "style": 0.6}),
]


@pytest.mark.parametrize("score", SCORES, ids=lambda s: type(s).__name__)
def test_scores_are_frozen_hashable_picklable_values(score: Score) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        score.score = 1.0  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(score)) == score
    assert hash(score) == hash(dataclasses.replace(score))
    assert float(score) == 0.5


def test_the_repr_shows_what_a_reader_needs() -> None:
    assert repr(SCORES[0]) == (
        "Score(0.5000, n=100, method='linear R²', per_dimension=(0.4000, 0.6000), "
        "null=Null(mean=0.1000, q95=0.2000, p_value=0.0050, permutations=200))"
    )
    assert "assignment=(1, None)" in repr(SCORES[1])
    assert "per_block={'content': 0.4000, 'style': 0.6000}" in repr(SCORES[2])


def test_the_repr_stays_short_in_many_dimensions() -> None:
    text = repr(Score(0.5, tuple(i / 511 for i in range(512)), 100, "linear R²"))
    assert "per_dimension=(0.0000 to 1.0000 over 512)" in text
    assert len(text) < 120
