"""Scores of codes against true factors: what they hold, how they hold it, and what chance would give.

z are the factors, ``(n, d)``; h the codes, ``(n, k)``; row i of both belongs to the same sample.

============================  ======================================================  ============
:func:`linear_r2`             can the factors be read off linearly?                   1 is perfect
:func:`block_r2`              the same for groups of factors (content, style)         1 is perfect
:func:`mcc`                   does each factor have a code of its own?                1 is perfect
:func:`orthogonality`         is the map a rotation and a scale?                      0 is perfect
:func:`permutation_distance`  is the map a reordering and rescaling of the factors?   0 is perfect
============================  ======================================================  ============
"""

from identica.metrics.correlation import correlations, mcc
from identica.metrics.geometry import orthogonality, permutation_distance
from identica.metrics.linear import block_r2, linear_r2
from identica.metrics.score import BlockScore, MatchedScore, Null, Score

__all__ = [
    "BlockScore",
    "MatchedScore",
    "Null",
    "Score",
    "block_r2",
    "correlations",
    "linear_r2",
    "mcc",
    "orthogonality",
    "permutation_distance",
]
