"""Scores of codes against true factors: what they hold, how they hold it, and what chance would give.

z are the factors, ``(n, d)``; h the codes, ``(n, k)``; row i of both belongs to the same sample.

============================  ======================================================  ============
:func:`linear_r2`             can the factors be read off linearly?                   1 is perfect
:func:`block_r2`              the same for groups of factors (content, style)         1 is perfect
:func:`block_scores`          are blocks of equal precision recovered, and rotated?    1 is perfect
:func:`mcc`                   does each factor have a code of its own?                1 is perfect
:func:`orthogonality`         is the map a rotation and a scale?                      0 is perfect
:func:`permutation_distance`  is the map a reordering and rescaling of the factors?   0 is perfect
:func:`knn_accuracy`          do near codes belong to one class?                      1 is perfect
:func:`linear_readout`        can classes be read off linearly?                       1 is perfect
:func:`augmentation_readout`  can it be read off what was done to an image?           1 is perfect
:func:`shifted_r2`            does what was read off hold for new inputs?             1 is perfect
:func:`domain_classifier`     do training and test inputs differ?                     ½: they do not
============================  ======================================================  ============
"""

from identica.metrics.blocks import (
    BlockPart,
    BlockScores,
    RotationMCC,
    block_scores,
    precision_blocks,
    rotation_mcc,
)
from identica.metrics.correlation import correlations, mcc
from identica.metrics.geometry import orthogonality, permutation_distance
from identica.metrics.linear import block_r2, linear_r2
from identica.metrics.overlap import SimilarityHistogram, similarity_histogram
from identica.metrics.readout import (
    ReadoutScore,
    augmentation_readout,
    domain_classifier,
    knn_accuracy,
    linear_readout,
)
from identica.metrics.score import BlockScore, MatchedScore, Null, Score
from identica.metrics.shifted import shifted_r2

__all__ = [
    "BlockPart",
    "BlockScore",
    "BlockScores",
    "MatchedScore",
    "Null",
    "ReadoutScore",
    "RotationMCC",
    "Score",
    "SimilarityHistogram",
    "augmentation_readout",
    "block_r2",
    "block_scores",
    "correlations",
    "domain_classifier",
    "knn_accuracy",
    "linear_r2",
    "linear_readout",
    "mcc",
    "orthogonality",
    "permutation_distance",
    "precision_blocks",
    "rotation_mcc",
    "shifted_r2",
    "similarity_histogram",
]
