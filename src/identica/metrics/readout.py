"""What codes of labelled data are good for: how well classes, augmentations or domains can be read off them.

Every readout is judged on rows it was not fitted on: those of ``test`` where they are given, else in two folds,
each half predicted by what was fitted on the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_args

import numpy as np
import torch
from torch import Tensor, nn

from identica._numbers import as_float, whole_number
from identica.metrics.inputs import (
    Matrix,
    _as_matrix,
    _as_real_tensor,
    _common_device,
    as_count,
    as_generator,
    warn_if_few,
)
from identica.metrics.logistic import fit_logistic
from identica.metrics.neighbours import Distance, fit_neighbours
from identica.metrics.network import fit_network
from identica.metrics.null import summarise
from identica.metrics.score import Score

#: One class a row: whole numbers or booleans.
Labels = Tensor | np.ndarray[Any, Any] | Sequence[int] | Sequence[bool]


class Applied(Protocol):
    """The parameters of an augmentation, which say of each row whether it was applied."""

    @property
    def applied(self) -> Tensor:
        """``(n,)`` booleans."""
        ...


#: Rows and their classes 0, 1, … to a function from other rows to classes.
Fit = Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]


@dataclass(frozen=True, repr=False)
class ReadoutScore(Score):
    """An accuracy on held-out rows; ``per_dimension`` is that of each of the ``classes``, NaN where none was judged.

    ``chance`` is the share of the commonest class among the rows judged: what guessing scores that looks at labels
    alone. ``null`` shuffles the labels of the rows judged against their predictions; nothing is fitted again.
    Over two folds, whose fits have seen each other's labels, its p-value is therefore approximate.
    """

    chance: float = 0.0
    classes: tuple[int, ...] = ()

    def _parts(self) -> list[str]:
        return [*super()._parts(), f"chance={self.chance:.4f}"]


def knn_accuracy(
    h: Matrix,
    labels: Labels,
    test: tuple[Matrix, Labels] | None = None,
    *,
    neighbours: int = 5,
    distance: Distance = "euclidean",
    seed: int = 0,
    null: int = 200,
) -> ReadoutScore:
    """How often the nearest codes belong to the same class: each row gets the commonest class of its neighbours.

    Args:
        h: ``(n, k)`` codes whose classes are known.
        labels: ``(n,)`` their classes.
        test: codes and classes to judge on; without it, two folds of h.
        neighbours: how many vote. Of classes with equally many votes the one with the nearest neighbour wins.
        distance: "euclidean" or "cosine"; equivalent for codes on a sphere.
        seed: chooses the folds and the shuffles of the null; the same on every device.
        null: how many shuffles, 0 for none.

    Distances are computed tile by tile in float64; the matrix of all of them never exists.

    >>> h = torch.arange(40.0)[:, None]
    >>> knn_accuracy(h, h[:, 0] >= 20, neighbours=3, null=0)
    ReadoutScore(0.9500, n=40, method='accuracy of 3 nearest neighbours, euclidean, two folds', \
per_dimension=(0.9000, 1.0000), chance=0.5000)
    """
    if distance not in get_args(Distance):
        raise ValueError(f"distance of knn_accuracy is 'euclidean' or 'cosine', not {distance!r}.")
    k = whole_number(neighbours, "neighbours")
    rows = _Rows.of(h, labels, test, seed)
    if k > rows.least_fitted:
        raise ValueError(f"There are {rows.least_fitted} rows to find neighbours among, fewer than neighbours={k}.")
    return rows.score(
        lambda fitted, classes: fit_neighbours(fitted, classes, len(rows.classes), k, distance),
        f"{k} nearest neighbours, {distance}",
        null,
    )


def linear_readout(
    h: Matrix,
    labels: Labels,
    test: tuple[Matrix, Labels] | None = None,
    *,
    penalty: float = 1.0,
    seed: int = 0,
    null: int = 200,
) -> ReadoutScore:
    """Accuracy of multinomial logistic regression on the standardised codes.

    The regression minimises Σ cross-entropy + ½ · penalty · ‖weights‖², a convex problem with one solution, by L-BFGS
    in float64: no learning rate, no seed. Codes are centred and scaled by what they are on the rows fitted on.

    Args:
        h: ``(n, k)`` codes.
        labels: ``(n,)`` their classes; booleans for a yes-or-no readout.
        test: codes and classes to judge on; without it, two folds of h.
        penalty: 1 is scikit-learn's default.
        seed: chooses the folds and the shuffles of the null.
        null: how many shuffles, 0 for none.

    >>> h = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> linear_readout(h, h[:, 0] > 0).score > 0.95
    True
    """
    strength = as_float(penalty)
    if not 0 < strength < float("inf"):
        raise ValueError(f"penalty of linear_readout is a positive number, not {penalty!r}.")
    rows = _Rows.of(h, labels, test, seed)
    warn_if_few(
        rows.least_fitted, rows.x.shape[1], folds=rows.folds, unit="codes", score="linear_readout", stacklevel=3
    )
    return rows.score(
        lambda fitted, classes: fit_logistic(fitted, classes, len(rows.classes), strength), "logistic regression", null
    )


def augmentation_readout(
    h: Matrix, applied: Mapping[str, Labels | Applied], *, seed: int = 0, null: int = 200
) -> dict[str, ReadoutScore]:
    """Was the augmentation applied or not? A linear readout for each of them (B, Table 1), chance being ½.

    Args:
        h: ``(n, k)`` codes of augmented observations.
        applied: for each augmentation by name, ``(n,)`` booleans, or what has them as ``applied``, such as the
            ``parameters`` that augmentations return. Draw them with probability ½.
        seed: as in :func:`linear_readout`.
        null: as in :func:`linear_readout`.
    """
    if not applied:
        raise ValueError('applied is empty; pass for example {"crop": parameters["crop"].applied}.')
    scores = {}
    for name, flags in applied.items():
        given: Any = getattr(flags, "applied", flags)
        flagged = _as_labels(given, f"applied[{name!r}]")
        yes = flagged == 1
        if not bool((yes | (flagged == 0)).all()):
            raise ValueError(
                f"applied[{name!r}] says of each row whether the augmentation was applied: booleans, or 0 and 1, not "
                f"numbers from {int(flagged.min())} to {int(flagged.max())}. linear_readout reads off more classes."
            )
        if bool(yes.all()) or not bool(yes.any()):
            raise ValueError(
                f"The augmentation {name!r} was applied to {'all' if bool(yes.all()) else 'none'} of the rows, so "
                "there is nothing to tell apart: draw it with probability=0.5."
            )
        scores[name] = linear_readout(h, yes, seed=seed, null=null)
    return scores


def domain_classifier(
    train: Tensor | np.ndarray[Any, Any],
    test: Tensor | np.ndarray[Any, Any],
    *,
    network: Callable[[], nn.Module] | None = None,
    steps: int = 1000,
    seed: int = 0,
    null: int = 200,
) -> ReadoutScore:
    """Can a small network tell the inputs of training from those of testing? ½ is chance: it cannot.

    Identifiability is promised where both have one marginal; B, Fig. 6 shows that it fades as they part. Latents
    drawn around opposite poles of the sphere part with the concentration:

    >>> from identica.distributions import VonMisesFisher
    >>> pole = torch.tensor([0.0, 0.0, 1.0])
    >>> north, south = (VonMisesFisher(loc, 3.0).sample(500, generator=seed) for seed, loc in enumerate((pole, -pole)))
    >>> 0.85 < domain_classifier(north, south, steps=200).score < 0.99
    True

    Args:
        train: ``(n, ...)`` inputs seen in training, such as augmented images.
        test: ``(m, ...)`` inputs seen in testing. Of the longer one a random part is used, so that both are as many.
        network: makes a new classifier with two outputs; by default a perceptron with two hidden layers of 128
            units on standardised inputs. Images are told apart better by a convolutional one.
        steps: batches of 256 that each fold's network is trained on.
        seed: of folds, weights, batches and shuffles.
        null: how many shuffles, 0 for none.
    """
    steps = whole_number(steps, "steps")
    train, test = _as_real_tensor(train, "train"), _as_real_tensor(test, "test")
    if train.shape[1:] != test.shape[1:] or train.ndim < 2 or min(len(train), len(test)) < 4:
        raise ValueError(
            "domain_classifier compares at least 4 inputs (n, ...) of each domain, of one shape, not "
            f"{tuple(train.shape)} and {tuple(test.shape)}."
        )
    generator, n = as_generator(seed), min(len(train), len(test))
    parts = [x[torch.randperm(len(x), generator=generator)[:n].to(x.device)].detach() for x in (train, test)]
    x = torch.cat([part.to(device=train.device, dtype=torch.float32) for part in parts])
    if not bool(torch.isfinite(x).all()):
        raise ValueError("domain_classifier needs finite inputs; these hold NaN or infinite numbers.")
    rows = _Rows.of_two_folds(x, torch.arange(2).repeat_interleave(n).to(x.device), generator)
    fits = (torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator))) for _ in range(2))
    return rows.score(
        lambda fitted, classes: fit_network(fitted, classes, network, steps, next(fits)), "domain classifier", null
    )


@dataclass(frozen=True)
class _Rows:
    """Rows with their classes as 0, 1, …, which of them are fitted on and judged on, and a source of shuffles."""

    x: Tensor
    labels: Tensor
    classes: tuple[int, ...]
    splits: tuple[tuple[Tensor, Tensor], ...]
    generator: torch.Generator

    @staticmethod
    def of(h: Matrix, labels: Labels, test: tuple[Matrix, Labels] | None, seed: int) -> _Rows:
        """From what a caller gives."""
        generator = as_generator(seed)
        x, y = _labelled(h, labels, _common_device(h, h if test is None else test[0]), ("h", "labels"))
        if test is None:
            return _Rows.of_two_folds(x, y, generator)
        x_test, y_test = _labelled(*test, x.device, ("h of test", "labels of test"))
        if x_test.shape[1] != x.shape[1]:
            raise ValueError(f"h has {x.shape[1]} columns and h of test has {x_test.shape[1]}: expected as many.")
        fitted = torch.arange(len(x), device=x.device)
        judged = torch.arange(len(x), len(x) + len(x_test), device=x.device)
        return _Rows._of(torch.cat([x, x_test]), torch.cat([y, y_test]), [(fitted, judged)], generator)

    @staticmethod
    def of_two_folds(x: Tensor, labels: Tensor, generator: torch.Generator) -> _Rows:
        """Random halves, each judged by the other."""
        if len(x) < 4:
            raise ValueError(
                f"h has {len(x)} rows, too few to fit on one half and judge on the other: pass at least 4."
            )
        order = torch.randperm(len(x), generator=generator).to(x.device)
        first, second = order[: len(x) // 2].sort().values, order[len(x) // 2 :].sort().values
        return _Rows._of(x, labels, [(first, second), (second, first)], generator)

    @staticmethod
    def _of(x: Tensor, y: Tensor, splits: Sequence[tuple[Tensor, Tensor]], generator: torch.Generator) -> _Rows:
        classes, labels = y.unique(return_inverse=True)
        if len(classes) < 2:
            raise ValueError("All labels are equal, so there is nothing to tell apart: pass at least two classes.")
        return _Rows(x, labels, tuple(classes.tolist()), tuple(splits), generator)

    @property
    def folds(self) -> int:
        """How many times is fitted."""
        return len(self.splits)

    @property
    def least_fitted(self) -> int:
        """The smallest number of rows fitted on."""
        return min(len(fitted) for fitted, _ in self.splits)

    @torch.no_grad()
    def score(self, fit: Fit, method: str, null: int) -> ReadoutScore:
        """Fit, predict the rows that were left out, and compare."""
        shuffles = as_count(null)
        predicted = torch.cat(
            [fit(self.x[fitted], self.labels[fitted])(self.x[judged]).cpu() for fitted, judged in self.splits]
        )
        truth = [self.labels[judged].cpu() for _, judged in self.splits]
        labels = torch.cat(truth)
        correct = predicted == labels
        accuracy = correct.double().mean().item()
        counts = torch.bincount(labels, minlength=len(self.classes)).double()
        per_class = torch.bincount(labels[correct], minlength=len(self.classes)) / counts
        shuffled = torch.stack([self._agreement(predicted, truth) for _ in range(shuffles)]) if shuffles else None
        return ReadoutScore(
            score=accuracy,
            per_dimension=tuple(per_class.tolist()),
            n=len(labels),
            method=f"accuracy of {method}, {'two folds' if self.folds == 2 else 'held-out rows'}",
            null=None if shuffled is None else summarise(shuffled, accuracy),
            chance=(counts.max() / counts.sum()).item(),
            classes=self.classes,
        )

    def _agreement(self, predicted: Tensor, truth: Sequence[Tensor]) -> Tensor:
        """The accuracy with the labels of each fold shuffled."""
        mixed = [part[torch.randperm(len(part), generator=self.generator)] for part in truth]
        return (predicted == torch.cat(mixed)).double().mean()


def _labelled(h: Matrix, labels: Labels, device: torch.device, names: tuple[str, str]) -> tuple[Tensor, Tensor]:
    x, y = _as_matrix(h, names[0], device), _as_labels(labels, names[1]).to(device)
    if len(x) == 0:
        raise ValueError(f"{names[0]} has no rows: there is nothing to learn from or to judge.")
    if len(x) != len(y):
        raise ValueError(f"{names[0]} has {len(x)} rows and {names[1]} {len(y)}: every row needs one label.")
    return x, y


def _as_labels(labels: Labels, name: str) -> Tensor:
    """``(n,)`` whole numbers on the CPU."""
    found = labels.detach().cpu() if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels, order="C"))
    if found.ndim != 1 or found.is_floating_point() or found.is_complex():
        raise ValueError(
            f"{name} must be whole numbers or booleans, one for each row, not {found.dtype} of shape "
            f"{tuple(found.shape)}."
        )
    return found.long()
