"""What holds, what was identified, and whether one may trust it."""

from identica.diagnostics.axes import Axes, best_axes, turn_to_axes
from identica.diagnostics.folding import Folding, folding
from identica.diagnostics.identification import Identification, block_identification, identification
from identica.diagnostics.limiting_precision import limiting_precision
from identica.diagnostics.precision import (
    PrecisionEstimate,
    best_precision,
    precision_scan,
    precision_standard_errors,
)
from identica.diagnostics.promise import Promise, promise
from identica.diagnostics.redundancy import Redundancy, redundancy
from identica.diagnostics.rounding import best_rounding
from identica.diagnostics.targets import iterations_to_target

__all__ = [
    "Axes",
    "Folding",
    "Identification",
    "PrecisionEstimate",
    "Promise",
    "Redundancy",
    "best_axes",
    "best_precision",
    "best_rounding",
    "block_identification",
    "folding",
    "identification",
    "iterations_to_target",
    "limiting_precision",
    "precision_scan",
    "precision_standard_errors",
    "promise",
    "redundancy",
    "turn_to_axes",
]
