"""Muon: steps in which every direction of a matrix counts alike, so that faint features are learned like bold ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

#: X ↦ aX + b(XXᵀ)X + c(XXᵀ)²X takes singular values that are not tiny to between 0.7 and 1.2 in five rounds.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5
#: The size of an entry of a step, in units of the learning rate: about that of Adam.
_SIZE = 0.2


class Muon(torch.optim.Adam):
    """Muon for groups with ``"matrices": True``, Adam for all others.

    The step of a matrix, or of a convolution, whose filters are the rows of one, is that of Nesterov's momentum
    M = U S Vᵀ without the singular values, U Vᵀ: a direction in which the gradient is weak moves as far as one in which
    it is strong. (K. Jordan et al., 2024; size of the step by J. Liu et al., 2025, so that Adam's learning rates can
    be kept: entries of 0.2 times the rate, in the square mean.) U Vᵀ comes from five Newton-Schulz rounds, on CUDA in
    bfloat16, and is right up to factors between 0.7 and 1.2; where singular values are tiny, smaller ones.

    stacked: whether the first dimension of all parameters numbers models that are trained together.
    momentum: of the matrices.

    Nothing waits for the device, and matrices of one shape are treated in one go.
    """

    def __init__(
        self, params: Iterable[dict[str, Any]], *, stacked: bool = False, momentum: float = 0.95, fused: bool = True
    ) -> None:
        super().__init__(params, fused=fused)
        self.stacked, self.momentum = stacked, momentum

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update; parameters without a gradient stay where they are."""
        for group in self.param_groups:
            if group.get("matrices"):
                self._move([p for p in group["params"] if p.grad is not None], group["lr"])
        super().step()

    def _move(self, parameters: list[Tensor], lr: float | Tensor) -> None:
        """Take the steps of matrices, and their gradients away, so that Adam does not see them."""
        by_shape: dict[tuple[int, ...], list[Tensor]] = {}
        for parameter in parameters:
            by_shape.setdefault(tuple(parameter.shape), []).append(parameter)
        for alike in by_shape.values():
            found = orthogonal(torch.stack([self._matrix(self._direction(p)) for p in alike]))
            size = _SIZE * max(found.shape[-2:]) ** 0.5
            for parameter, step in zip(alike, found.unbind(), strict=True):
                parameter.sub_((lr * size) * step.view(parameter.shape))
                parameter.grad = None

    def _matrix(self, values: Tensor) -> Tensor:
        """As one matrix, or one for each of the models."""
        return values.flatten(2 if self.stacked else 1)

    def _direction(self, parameter: Tensor) -> Tensor:
        """Nesterov's momentum."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if "momentum" not in state:
            # Adam, when it is restored, expects everything that was remembered to have a count of steps.
            state["step"] = torch.zeros((), device=parameter.device)
            state["momentum"] = torch.zeros_like(parameter)
        state["step"] += 1
        state["momentum"].lerp_(gradient, 1 - self.momentum)
        return gradient.lerp(state["momentum"], self.momentum)


def orthogonal(matrices: Tensor) -> Tensor:
    """U Vᵀ of each matrix M = U S Vᵀ in ``(..., m, n)``, up to factors between 0.7 and 1.2."""
    m, n = matrices.shape[-2:]
    x = matrices.bfloat16() if matrices.device.type == "cuda" else matrices
    x = (x.mT if m > n else x).reshape(-1, min(m, n), max(m, n))
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    x = x.view(*matrices.shape[:-2], *x.shape[-2:])
    return (x.mT if m > n else x).to(matrices.dtype)
