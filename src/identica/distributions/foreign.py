"""Explicit randomness for any torch distribution, also for those that only know the global one.

>>> normal = torch.distributions.Normal(torch.zeros(2), 1.0)
>>> first = sample_with(normal, 3, torch.Generator().manual_seed(0))
>>> torch.equal(first, sample_with(normal, 3, torch.Generator().manual_seed(0)))
True
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from identica._randomness import Randomness, as_generator
from identica.distributions.base import LatentDistribution, as_size


def sample_with(
    distribution: Distribution, shape: Any, generator: Randomness | None, *, gradients: bool = False
) -> Tensor:
    """Draw ``(*shape, *batch_shape, *event_shape)`` on the generator's device, with its numbers.

    One of this package's distributions takes the generator itself. Any other is drawn from torch's global
    random state, seeded with a number from the generator and then put back as it was; it therefore waits for
    the device. A whole number in place of the generator seeds one, and the draws stay where the parameters are.
    Without a generator both draw from the global state. ``gradients`` asks for ``rsample``.
    """
    if isinstance(distribution, LatentDistribution):
        draw = distribution.rsample if gradients else distribution.sample
        return draw(shape, generator=generator)
    foreign_draw = distribution.rsample if gradients else distribution.sample
    if generator is None:
        return foreign_draw(as_size(shape))
    with _global_state_from(as_generator(generator)):
        draws = foreign_draw(as_size(shape))
    return draws.to(generator.device) if isinstance(generator, torch.Generator) else draws


@contextmanager
def _global_state_from(generator: torch.Generator) -> Iterator[None]:
    """Seed the global random state of the CPU and of every GPU in use from the generator, for a while."""
    seed = int(torch.randint(2**63 - 1, (), generator=generator, device=generator.device))
    # A GPU that has not been touched holds no parameters; seeding it now would show when it is first used.
    in_use = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=in_use):
        torch.default_generator.manual_seed(seed)
        if in_use:
            torch.cuda.manual_seed_all(seed)
        yield
