"""What the theorems promise for pairs of a given precision: single factors, or blocks of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from torch import Tensor

from identica.distributions.conditional import Conditional
from identica.distributions.fisher_bingham_ratio import ratio_precision
from identica.distributions.sphere_uniform import SphereUniform
from identica.distributions.von_mises_fisher import VonMisesFisher
from identica.metrics.blocks import LEARNED, SAME, as_precision, precision_blocks
from identica.objectives import EnsembleInfoNCE, InfoNCE
from identica.processes import EnsembleProcess, PairProcess
from identica.similarities import Anisotropic

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Promise:
    """Up to which transformation the factors are identified, given enough data and a perfect minimum.

    level: "permutation" if every factor is told apart from every other, else "block".
    blocks: the factors that are not told apart from each other, from the highest precision to the lowest.
    not_separated: the pairs of factors that no Λ separates; empty exactly for "permutation".
    sentence: the same in words.
    """

    level: Literal["permutation", "block"]
    blocks: tuple[tuple[int, ...], ...]
    not_separated: tuple[tuple[int, int], ...]
    sentence: str


def promise(source: Any, tolerance: float | None = None) -> Promise:
    """What minimising AnInfoNCE on pairs of this precision promises (B, Thm 3.1, Cor. B.1 and B.2, Rem. D.4).

    With one Λ factors of equal precision come back as a block, up to a rotation. Several Λ, one for each process
    of an ensemble, promise single factors if every two factors have different precisions in at least one of them.
    All of it is about anchors that are uniform on the sphere; a process with others is refused.

    Args:
        source: Λ, ``(d,)``, or a list of several; or what has one: a PairProcess (with hard negatives: Λ⁺ − Λ⁻),
            an EnsembleProcess, and, learned, an Anisotropic similarity, InfoNCE or EnsembleInfoNCE.
        tolerance: up to which relative gap two precisions count as equal. By default 1e-6, and 0.05 where a Λ̂ is
            learned, whose entries never agree to the last digit; the sentence then says so.

    >>> promise([5.0, 5.0, 25.0]).sentence
    'Factors 0 and 1 have equal precision: they are identified as a block, up to a rotation. Every other factor is \
identified up to its sign.'
    >>> promise([[5.0, 5.0, 25.0], [5.0, 9.0, 5.0]]).level
    'permutation'
    """
    if tolerance is None:
        tolerance = LEARNED if _is_learned(source) else SAME
    precisions = _precisions(source)
    for precision in precisions:
        if not (precision > 0).all():
            raise ValueError(
                f"The theorem asks for positive precisions, not {precision.tolist()}: pairs say nothing about a factor "
                "of precision 0. (Several rows are several Λ; of a diagonal matrix pass the diagonal.)"
            )
    blocks = precision_blocks(*precisions, tolerance=tolerance)
    pairs = tuple(sorted(pair for block in blocks for pair in combinations(block, 2)))
    level: Literal["permutation", "block"] = "block" if pairs else "permutation"
    say = _learned_sentence if _is_learned(source) else _sentence
    return Promise(level, blocks, pairs, say(blocks, len(precisions), tolerance))


def _is_learned(source: Any) -> bool:
    """Whether the precisions of a source come from training."""
    if isinstance(source, EnsembleInfoNCE):
        return any(_is_learned(similarity) for similarity in source.similarities)
    if isinstance(source, InfoNCE):
        return _is_learned(source.similarity)
    return isinstance(source, Anisotropic) and source.trainable


def _sentence(blocks: tuple[tuple[int, ...], ...], count: int, tolerance: float) -> str:
    large = [block for block in blocks if len(block) > 1]
    gap = f"{100 * tolerance:.3g} %" if tolerance > SAME else ""
    if not large:
        who = "Every two factors differ in precision"
        who += f" by more than {gap}" if gap else ""
        who += f" in at least one of the {count} Λ" if count > 1 else ""
        return f"{who}: every factor is identified, up to order and sign."
    shown = "; factors ".join(_listed(block) for block in large)
    where = f" in all {count} Λ" if count > 1 else ""
    noun = "they are identified as a block" if len(large) == 1 else "they are identified as blocks"
    rest = " Every other factor is identified up to its sign." if len(large) < len(blocks) else ""
    equal = "equal precision" + (f" to {gap}" if gap else "")
    return f"Factors {shown} have {equal}{where}: {noun}, up to a rotation{' of each' * (len(large) > 1)}.{rest}"


def _learned_sentence(blocks: tuple[tuple[int, ...], ...], count: int, tolerance: float) -> str:
    """Of a Λ̂, which is in the order of the codes and promises what it says only at the minimum of the loss."""
    large = [block for block in blocks if len(block) > 1]
    gap = f"{100 * tolerance:.3g} %"
    if not large:
        where = f" in at least one of the {count} Λ̂" if count > 1 else ""
        return (
            f"By the learned Λ̂ every two codes differ in precision by more than {gap}{where}: if training has come to "
            "the minimum, every code is a factor of its own, up to sign."
        )
    shown = "; codes ".join(_listed(block) for block in large)
    where = f" in all {count} Λ̂" if count > 1 else ""
    rest = " Every other code is a factor of its own, up to sign." if len(large) < len(blocks) else ""
    return (
        f"By the learned Λ̂ codes {shown} have equal precision to {gap}{where}: if training has come to the minimum, "
        f"{'each of these groups holds' if len(large) > 1 else 'they hold'} a block of factors, up to a rotation.{rest}"
    )


def _listed(factors: Sequence[int]) -> str:
    """As in "0 and 1", "0, 2 and 5" or "3 to 9"."""
    first, last = factors[0], factors[-1]
    if len(factors) > 2 and list(factors) == list(range(first, last + 1)):
        return f"{first} to {last}"
    return f"{', '.join(map(str, factors[:-1]))} and {last}"


def _precisions(source: Any) -> list[Array]:
    if isinstance(source, PairProcess):
        if not isinstance(source.conditional, Conditional):
            raise ValueError(
                "The conditional is a function of the user's, whose precision is not known: pass Λ itself."
            )
        _require_uniform_anchors(source)
        negative: Any = source.negative_conditional
        return [as_precision(ratio_precision(source.conditional, negative, source.dim))]
    if isinstance(source, EnsembleProcess):
        return [precision for process in source.processes for precision in _precisions(process)]
    if isinstance(source, EnsembleInfoNCE):
        return [precision for similarity in source.similarities for precision in _precisions(similarity)]
    if isinstance(source, InfoNCE):
        return _precisions(source.similarity)
    if isinstance(source, Anisotropic):
        return [as_precision(source.precision)]
    if isinstance(source, Tensor | np.ndarray):
        return [as_precision(source)] if source.ndim < 2 else [as_precision(row) for row in source]
    if isinstance(source, Sequence) and not isinstance(source, str):
        several = [isinstance(row, Tensor | np.ndarray | Sequence) and np.ndim(row) > 0 for row in source]
        if any(several) and not all(several):
            raise ValueError("Pass one Λ, a number for each factor, or a list of several, not numbers beside lists.")
        return [as_precision(row) for row in source] if any(several) else [as_precision(source)]
    raise TypeError(
        f"A promise is about precisions: pass Λ, several of them, or a process or loss that has some, not {source!r}."
    )


def _require_uniform_anchors(process: PairProcess) -> None:
    marginal = process.marginal
    if isinstance(marginal, SphereUniform):
        return
    if isinstance(marginal, VonMisesFisher) and bool((marginal.concentration == 0).all()):
        return
    raise ValueError(
        f"The theorems promise something for anchors that are uniform on the sphere, not for those of {marginal!r}, "
        "whose density enters the ratio that the loss learns. Draw them from SphereUniform, or pass Λ itself to see "
        "what uniform anchors would promise."
    )
