"""Several runs of one experiment as one step: parameters stacked, products batched, one graph.

Each run keeps its process, its weights, its random stream and its history, and ends as it would alone. On the CPU,
whose cores one run keeps busy, the runs take their steps in turn and every bit is as if each were alone. On CUDA
the step is mapped over the seeds (:func:`torch.func.vmap`): one launch does the same work for all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils import _pytree as pytree

from identica._products import tf32
from identica.objectives import Objective, Terms
from identica.training.capture import CapturedCall
from identica.training.config import TrainConfig
from identica.training.schedules import Schedules, gradual_numbers
from identica.training.state import TrainState, make_optimizer
from identica.training.step import Process, in_precision, make_step, note


class Together:
    """Runs that take their steps together; ``advance`` takes one.

    ``mapped``: whether the steps are mapped over the seeds; by default on CUDA, where the parts allow it.
    """

    def __init__(
        self,
        processes: Sequence[Process],
        states: Sequence[TrainState],
        config: TrainConfig,
        *,
        mapped: bool | None = None,
    ) -> None:
        self.states = list(states)
        self._stacked: _Stacked | None = None
        if mapped is None:
            mapped = len(states) > 1 and states[0].device.type == "cuda" and _can_be_mapped(processes, states, config)
        if mapped:
            self._stacked = _Stacked(processes, self.states, config)
            self._advance: Callable[[], object] = self._stacked.step()
        else:
            steps = [make_step(process, state, config) for process, state in zip(processes, states, strict=True)]
            self._advance = lambda: [step() for step in steps]

    def advance(self) -> None:
        """One step of every run."""
        self._advance()
        if self._stacked is not None:
            for state in self.states:
                state.step += 1
                state.summed_steps += 1

    def spread(self) -> None:
        """Bring the optimiser's state to the runs it belongs to, so that each can be saved."""
        if self._stacked is not None:
            self._stacked.spread_optimizer()


class _Model(nn.Module):
    """Encoder and objective as one module, so that one call can replace the parameters of both."""

    def __init__(self, encoder: nn.Module, objective: Objective, encode: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.encoder, self.objective = encoder, objective
        self._encode = [encode]  # in a list: a module among attributes would be registered twice

    def forward(self, pairs: Any) -> tuple[Tensor, ...]:
        """The terms without those of single items."""
        terms = self.objective.compute(self._encode[0], pairs)
        return terms.loss, terms.alignment, terms.log_partition, terms.accuracy, terms.information


def _models(states: Sequence[TrainState], config: TrainConfig) -> list[_Model]:
    return [
        _Model(state.encoder, state.objective, in_precision(state.encoder, config.precision, state.device))
        for state in states
    ]


def _stack(tensors: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([of_seed[name].detach() for of_seed in tensors]) for name in tensors[0]}


def _places(model: nn.Module) -> dict[str, str]:
    """Every place that holds a parameter or buffer, each once, with the first name of the tensor it holds.

    A module that is there twice is one place, two modules that share a tensor are two. ``functional_call`` by itself
    leaves a replaced tensor behind in a module that is there twice.
    """
    first: dict[int, str] = {}
    places: dict[tuple[int, str], tuple[str, str]] = {}
    for names in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, tensor in names:
            owner, _, last = name.rpartition(".")
            known = first.setdefault(id(tensor), name)
            places.setdefault((id(model.get_submodule(owner)), last), (name, known))
    return dict(places.values())


def _mapped(model: _Model, parameters: dict[str, Tensor], buffers: dict[str, Tensor], pairs: Any) -> Terms:
    """The terms of every seed, all ``(seeds,)``; in place of those of single items stand the losses."""
    places = _places(model)

    def one(of_parameters: dict[str, Tensor], of_buffers: dict[str, Tensor], of_pairs: Any) -> tuple[Tensor, ...]:
        tensors = of_parameters | of_buffers
        placed = {place: tensors[name] for place, name in places.items()}
        result: tuple[Tensor, ...] = functional_call(model, placed, (of_pairs,), tie_weights=False)
        return result

    terms: tuple[Tensor, ...] = vmap(one, randomness="different")(parameters, buffers, pairs)
    loss, alignment, log_partition, accuracy, information = terms
    return Terms(loss, alignment, log_partition, accuracy, information, per_item=loss)


def _can_be_mapped(processes: Sequence[Process], states: Sequence[TrainState], config: TrainConfig) -> bool:
    """Try a small batch; a warning says why if it does not work."""
    models = _models(states, config)
    try:
        with torch.no_grad(), tf32(config.precision == "tf32"):
            pairs = _sample(processes, [torch.Generator(state.device).manual_seed(0) for state in states], 8)
            parameters = _stack([dict(model.named_parameters()) for model in models])
            _mapped(models[0], parameters, _stack([dict(model.named_buffers()) for model in models]), pairs)
    except (RuntimeError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        warnings.warn(f"The seeds cannot be trained as one and take turns, more slowly: {reason}", stacklevel=5)
        return False
    return True


def _sample(processes: Sequence[Process], generators: Sequence[torch.Generator], n: int) -> Any:
    """Pairs with an axis of seeds in front, each seed's from its own process and generator.

    On CUDA the seeds draw side by side, each on a stream of its own: their kernels are too small to fill the device.
    """
    drawn: list[Any] = []
    streams: list[torch.cuda.Stream] = []
    for process, generator in zip(processes, generators, strict=True):
        if generator.device.type != "cuda":
            drawn.append(process.sample(n, generator))
            continue
        stream = torch.cuda.Stream(generator.device)
        stream.wait_stream(torch.cuda.current_stream(generator.device))
        with torch.cuda.stream(stream):
            drawn.append(process.sample(n, generator))
        streams.append(stream)
    for stream in streams:
        torch.cuda.current_stream(stream.device).wait_stream(stream)
    return pytree.tree_map(lambda *parts: torch.stack(parts), *drawn)


class _Stacked:
    """The tensors of all runs, stacked; those of the single runs become views of them."""

    def __init__(self, processes: Sequence[Process], states: list[TrainState], config: TrainConfig) -> None:
        self.processes, self.states, self.config = list(processes), states, config
        self.models = _models(states, config)
        self.parameters = _stack([dict(model.named_parameters()) for model in self.models])
        self.buffers = _stack([dict(model.named_buffers()) for model in self.models])
        for name, parameter in self.models[0].named_parameters():
            self.parameters[name].requires_grad_(parameter.requires_grad)
        groups = [
            [p for name, p in self.parameters.items() if p.requires_grad and name.startswith(f"{part}.")]
            for part in ("encoder", "objective")
        ]
        self.optimizer = make_optimizer(groups[0], groups[1], config, stacked=True)
        self._gather_optimizer()
        self._share()

    def _share(self) -> None:
        """From here on every run sees its slice of the stacked tensors, whoever changes them."""
        states = self.states
        self.sums = torch.stack([state.sums for state in states])
        self.first_bad_step = torch.stack([state.first_bad_step for state in states])
        self.device_step = states[0].device_step
        for k, (state, model) in enumerate(zip(states, self.models, strict=True)):
            state.sums, state.first_bad_step = self.sums[k], self.first_bad_step[k]
            state.device_step = self.device_step
            for name, parameter in model.named_parameters():
                parameter.data = self.parameters[name].data[k]
                parameter.grad = None
            for place, name in _places(model).items():
                owner, _, last = place.rpartition(".")
                if name in self.buffers:
                    model.get_submodule(owner)._buffers[last] = self.buffers[name][k]

    def step(self) -> Callable[[], object]:
        """One step of all runs; on CUDA captured as one graph."""
        states, config, generators = self.states, self.config, [state.generator for state in self.states]
        numbers = [(number, self.buffers[f"{name}.value"]) for name, number in gradual_numbers(self.models[0])]
        schedules = Schedules(self.optimizer, numbers, config)

        def on_device() -> Terms:
            schedules.follow(states[0].step, self.device_step)
            with tf32(config.precision == "tf32"):
                pairs = _sample(self.processes, generators, config.batch_size)
                self.optimizer.zero_grad(set_to_none=True)
                terms = _mapped(self.models[0], self.parameters, self.buffers, pairs)
                terms.loss.sum().backward()
            self.optimizer.step()
            with torch.no_grad():
                note(self.sums, self.first_bad_step, self.device_step, terms)
            return terms

        return CapturedCall(on_device, *generators) if states[0].device.type == "cuda" else on_device

    def _pairs(self) -> list[tuple[Tensor, list[nn.Parameter]]]:
        """Each trained tensor with the parameters of the single runs that it stacks."""
        single = [dict(model.named_parameters()) for model in self.models]
        return [(p, [of_seed[name] for of_seed in single]) for name, p in self.parameters.items() if p.requires_grad]

    def _gather_optimizer(self) -> None:
        """Take over what the runs' own optimisers remember, where they have been restored from a checkpoint."""
        for stacked, parameters in self._pairs():
            of_seeds = [state.optimizer.state[p] for state, p in zip(self.states, parameters, strict=True)]
            own = self.optimizer.state[stacked]
            for key, value in of_seeds[0].items():
                value = value if key == "step" else torch.stack([entry[key] for entry in of_seeds])
                own[key] = own[key].copy_(value) if key in own else value.clone()

    def spread_optimizer(self) -> None:
        """The other way round."""
        for stacked, parameters in self._pairs():
            entry = self.optimizer.state[stacked]
            for k, (state, parameter) in enumerate(zip(self.states, parameters, strict=True)):
                state.optimizer.state[parameter] = {
                    key: value if key == "step" else value[k] for key, value in entry.items()
                }
