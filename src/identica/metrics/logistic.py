"""Multinomial logistic regression with a ridge penalty."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

#: The largest entry of the gradient of the mean loss that counts as converged.
CONVERGED = 1e-5


@torch.enable_grad()
def fit_logistic(x: Tensor, labels: Tensor, classes: int, penalty: float) -> Callable[[Tensor], Tensor]:
    """A function from rows ``(m, k)`` to their likeliest class ``(m,)``, fitted on ``x: (n, k)`` in float64.

    Minimises Σ cross-entropy + ½ · penalty · ‖weights‖² over weights and (unpenalised) biases; columns of x are
    standardised first, constant ones become zero.
    """
    mean, scale = x.mean(dim=0), x.std(dim=0, correction=0)
    scale = torch.where(scale > 1e-12 * x.abs().amax(dim=0), scale, torch.inf)
    standard = (x - mean) / scale
    weights = torch.zeros(x.shape[1], classes, dtype=x.dtype, device=x.device, requires_grad=True)
    bias = torch.zeros(classes, dtype=x.dtype, device=x.device, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights, bias],
        max_iter=1000,
        tolerance_grad=CONVERGED / 100,
        tolerance_change=1e-14,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        ridge = 0.5 * penalty / len(x) * weights.square().sum()
        value = functional.cross_entropy(standard @ weights + bias, labels) + ridge
        value.backward()
        return value

    optimizer.step(loss)
    loss()
    steepest = max(float(parameter.grad.abs().max()) for parameter in (weights, bias) if parameter.grad is not None)
    if not steepest < CONVERGED:
        warnings.warn(
            f"The logistic regression has not converged: its gradient is still {steepest:.1e}. A larger penalty helps.",
            stacklevel=2,
        )
    fitted_weights, fitted_bias = weights.detach(), bias.detach()
    return lambda rows: ((rows - mean) / scale @ fitted_weights + fitted_bias).argmax(dim=1)
