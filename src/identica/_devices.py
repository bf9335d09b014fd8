"""Devices at the border: one that works, or a sentence."""

from __future__ import annotations

import torch


def usable_device(device: torch.device | str | int) -> torch.device:
    """The device with its index; a sentence if nothing can be put on it.

    >>> usable_device("cpu")
    device(type='cpu')
    """
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        if reason.startswith("Expected one of"):  # and a list of twenty
            reason = "torch has none of that name"
        raise ValueError(f"The device '{device}' cannot be used here ({reason}): choose 'cpu', which can.") from error
