"""A data generating process: marginal + conditional (+ hard negatives) + mixing. It draws pairs.

z comes from the marginal p(z), its positive z̃ from the conditional p(z̃ | z), and both are seen through the
mixing only: x = g(z), x̃ = g(z̃) (A, Eq. 2).
"""

from identica.processes.anchors import AnchorProcess, EvaluatedOn
from identica.processes.ensemble import EnsembleProcess
from identica.processes.optimal_loss import OptimalLoss
from identica.processes.pair_process import PairProcess
from identica.processes.pairs import Pairs
from identica.processes.parts import space_of
from identica.processes.pool import PairPool
from identica.processes.prefetched import Prefetched
from identica.processes.snapped import SnappedProcess

__all__ = [
    "AnchorProcess",
    "EnsembleProcess",
    "EvaluatedOn",
    "OptimalLoss",
    "PairPool",
    "PairProcess",
    "Pairs",
    "Prefetched",
    "SnappedProcess",
    "space_of",
]
