"""Adam for CUDA devices whose parameters share one vector, so that one launch updates all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class FlatAdam(torch.optim.Optimizer):
    """Adam (``decoupled=False``) or AdamW over float32 parameters, with the numbers of :class:`torch.optim.Adam`.

    The parameters of a group become views of one vector, and so does what the optimiser remembers of them. Its
    ``state_dict`` has the layout of torch's, tensor by tensor, and either loads what the other saved.

    The learning rate of a group is a tensor on the device: a captured step reads it there.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled: bool = False,
    ) -> None:
        defaults = {"betas": betas, "eps": eps, "weight_decay": weight_decay, "decoupled": decoupled}
        super().__init__(params, defaults)
        self._flat = [self._flatten(group["params"]) for group in self.param_groups]

    def _flatten(self, parameters: list[Tensor]) -> dict[str, Tensor]:
        vector = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        flat = {"parameter": vector, "exp_avg": torch.zeros_like(vector), "exp_avg_sq": torch.zeros_like(vector)}
        flat["step"] = torch.zeros((), device=vector.device)
        for parameter, place in zip(parameters, _places(parameters), strict=True):
            parameter.data = vector[place].view(parameter.shape)
            remembered = {name: flat[name][place].view(parameter.shape) for name in ("exp_avg", "exp_avg_sq")}
            self.state[parameter] = {"step": flat["step"], **remembered}
        return flat

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what an optimiser of the same parameters remembered, into the shared vectors."""
        own = {parameter: dict(entry) for parameter, entry in self.state.items()}
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        for parameter, entry in own.items():
            for name, tensor in entry.items():
                if name in self.state[parameter]:
                    tensor.copy_(self.state[parameter][name])
            self.state[parameter] = entry

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update; parameters without a gradient count as having the gradient 0."""
        from identica.training.triton_adam import run_adam

        for group, flat in zip(self.param_groups, self._flat, strict=True):
            gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in group["params"]]
            flat["step"] += 1
            run_adam(
                flat["parameter"],
                torch.cat([gradient.reshape(-1) for gradient in gradients]),
                flat["exp_avg"],
                flat["exp_avg_sq"],
                group["lr"],
                flat["step"],
                betas=group["betas"],
                epsilon=group["eps"],
                decay=group["weight_decay"],
                decoupled=group["decoupled"],
            )


def _places(parameters: list[Tensor]) -> list[slice]:
    """Where each parameter lies in the vector."""
    places, start = [], 0
    for parameter in parameters:
        places.append(slice(start, start + parameter.numel()))
        start += parameter.numel()
    return places
