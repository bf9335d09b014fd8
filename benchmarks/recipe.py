"""The runs behind docs/recipe.md: list them, or run some of them again.

    python benchmarks/recipe.py                  every recorded run with its settings and last scores
    python benchmarks/recipe.py --again 3,17     train these again here and print both
    python benchmarks/recipe.py --new FILE       train what the lines of a file describe; prints them with curves

Each line of recipe.jsonl is one run, seed 0: settings, and a curve of [step, R², MCC, loss]. Those of the H200 are in
TF32 unless they say otherwise, and some of them older than the fused kernels, whose rounding is another ("cut_off":
operands were not rounded yet). A line with "table_seed" is a run of any table or figure, as ``identica reproduce``
trains it with that seed, but with a changed recipe; those on MNIST want its folder in the variable IDENTICA_DATA. What
such a line does not name is the row's recipe of today: when that changes, the line must name what it was.
Runs with another optimiser, averaged weights or a growing batch are not captured: a plain loop here trains them.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import identica as idt
from identica.diagnostics import redundancy
from identica.experiments import find
from identica.experiments.aninfonce.measures import learned
from identica.experiments.catalogue import Entry, Row
from identica.experiments.parts import make_conditional, make_marginal, make_space, power_of
from identica.experiments.running.stages import train_stages
from identica.experiments.running.supplies import Supplies, data_folder
from identica.experiments.three_d_ident.budgets import Resolution
from identica.training import TrainingDiverged

RUNS = Path(__file__).with_name("recipe.jsonl")
#: What a line does not name.
DEFAULTS: dict[str, Any] = {
    "dim": 10,
    "candidates": 25_000,
    "positives": 1,
    "learn_bound": True,
    "anneal": None,
    "self_weight": None,
    "scaled_codes": False,
    "precision": "tf32",
    "activation": "gelu",
    "evaluations": 5,
    "muon_lr": None,  # of Muon for the hidden matrices; Adam has the rest
    "average": None,  # decay of the average of the weights that is scored
    "from_truth": False,  # no mixing, and an encoder that starts as the truth times 2: where does the loss take it?
    "scale": None,  # of the pairs, in place of the row's
    "grow_from": None,  # the first of three batch sizes, each for a third of the steps; the last is "batch"
}


class Scaled(nn.Module):
    """An encoder whose codes are centred and scaled, batch by batch, to a given size."""

    def __init__(self, encoder: idt.ResidualEncoder, size: float) -> None:
        super().__init__()
        self.encoder, self.size = encoder, size

    def prepare(self, x: Tensor) -> None:
        """Let the encoder look at observations."""
        self.encoder.prepare(x)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, dim_in) -> (n, dim)``."""
        codes = self.encoder(x)
        codes = codes - codes.mean(dim=0)
        return codes * (self.size / codes.square().mean().sqrt())


def row_of(run: dict[str, Any]) -> Entry:
    """The row of a run, with pairs of another scale where it names one."""
    row = find(run["experiment"]).row(run["row"])
    scale = run["scale"]
    return row if scale is None else replace(row, conditional=replace(row.conditional, scale=scale))


def parts(run: dict[str, Any]) -> tuple[idt.PairProcess, nn.Module, idt.InfoNCE]:
    """The process, encoder and objective of a run."""
    row, dim = row_of(run), run["dim"]
    assert isinstance(row, Row)
    process = idt.PairProcess(
        make_marginal(row.marginal, row.space, dim),
        make_conditional(row.conditional, row.space),
        None if run["from_truth"] else idt.InvertibleMLP(dim, seed=0, candidates=run["candidates"]),
        positives_per_anchor=run["positives"],
    )
    space = make_space(row.model_space, dim)
    encoder: Any = idt.ResidualEncoder(
        dim, space, width=run["width"], activation=run["activation"], learn_bound=run["learn_bound"], seed=0
    )
    if run["from_truth"]:
        encoder = at_the_truth(encoder, process)
    if run["scaled_codes"]:  # to the size of the true latents
        encoder = Scaled(encoder, 12**-0.5 if row.space == "box" else 1.0)
    p = power_of(row.model)
    similarity: idt.Similarity = (
        idt.DotProduct(run["temperature"]) if p is None else idt.LpSimilarity(p, run["temperature"])
    )
    if run["anneal"]:
        similarity = idt.Annealed(similarity, *run["anneal"])
    own: Any = idt.Gradual(*run["self_weight"]) if run["self_weight"] else False
    return process, encoder, idt.InfoNCE(similarity, self_negatives=own)


def at_the_truth(encoder: idt.ResidualEncoder, process: idt.PairProcess) -> idt.ResidualEncoder:
    """The encoder with a skip that undoes its whitening and doubles."""
    encoder.prepare(process.sample(8192, 1).x)
    dim = encoder.dim_in
    with torch.no_grad():
        basis = torch.cat([torch.zeros(1, dim), torch.eye(dim)])
        whitened = encoder.whiten(basis)  # affine: what it does to 0 and to the unit vectors is all
        inverse = torch.linalg.inv(whitened[1:] - whitened[0])
        encoder.skip.weight.copy_(2 * inverse.T)
        encoder.skip.bias.copy_(-2 * whitened[0] @ inverse)
    return encoder


def train(run: dict[str, Any]) -> dict[str, Any]:
    """One run, on the GPU if there is one: its "curve" of [step, R², MCC, loss] and what else it tells."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return train_as_in_the_table(run, device) if "table_seed" in run else {"curve": train_alone(run, device)}


def train_alone(run: dict[str, Any], device: torch.device) -> list[list[float]]:
    """A run of the synthetic tables that names all of its settings."""
    steps = run["steps"]
    config = idt.TrainConfig(
        steps=steps,
        batch_size=run["batch"],
        lr=run["lr"],
        schedule="cosine",
        eval_every=steps // run["evaluations"],
        precision=run["precision"],
    )
    if run["muon_lr"] or run["average"] or run["grow_from"]:
        return train_by_hand(run, config, device)
    return curve_of(idt.train(*parts(run), config, device=device, quiet=True))


def curve_of(run: idt.TrainingRun) -> list[list[float]]:
    """The evaluations of a run."""
    return [[record.step, record["r2"], record["mcc"], record.terms.get("loss", 0.0)] for record in run.history]


def train_as_in_the_table(run: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """What ``identica reproduce`` trains for this row and seed, but for the changes in ``run["recipe"]``.

    Besides the curve: R² of each factor, how much of one code the others know, how long the mean code is (of codes on a
    sphere), and Λ̂ where one is learned.
    """
    experiment, seed, changes = find(run["experiment"]), run["table_seed"], dict(run["recipe"])
    if "resolutions" in changes:
        changes["resolutions"] = tuple(Resolution(**resolution) for resolution in changes["resolutions"])
    plan = experiment.plan(row_of(run), "fast", "cuda" if device.type == "cuda" else "cpu")
    plan = replace(plan, recipe=replace(plan.recipe, **changes))
    plan = plan.supplied(Supplies(data_folder(None), Path("results"), device))
    model = run.get("model", plan.trained[0])
    if plan.stages(model):
        with tempfile.TemporaryDirectory() as folder:
            (trained,) = train_stages(plan, model, [seed], device=device, folder=Path(folder), callbacks=())
        if isinstance(trained, TrainingDiverged):
            raise trained
    else:
        parts = plan.training_process(model, seed), plan.encoder(model, seed), plan.objective(model)
        trained = idt.train(*parts, plan.train_config(model), seed=plan.seed(model, seed), device=device, quiet=True)
    samples = min(8192, plan.recipe.evaluation_samples)
    found = idt.evaluate(plan.process(model, seed), trained, samples, generator=1, device=device)
    data: dict[str, Any] = {
        "curve": curve_of(trained),
        "factors": shortened(found.r2.per_dimension),
        "known": shortened([redundancy(found.h).largest])[0],
    }
    if isinstance(trained.encoder.space, idt.Sphere):  # type: ignore[union-attr]
        data["mean_code"] = shortened([float(found.h.mean(dim=0).norm())])[0]
    if "precision" in (measured := learned(trained.objective)):
        data["precision"] = shortened(measured["precision"])
    return data


def shortened(values: Iterable[float | None]) -> list[float]:
    """Numbers with four digits."""
    return [float("nan") if value is None else float(f"{value:.4g}") for value in values]


def train_by_hand(run: dict[str, Any], config: idt.TrainConfig, device: torch.device) -> list[list[float]]:
    """Training step by step, with what ``idt.train`` does not offer: Muon for the blocks alone, averages, growth."""
    process, encoder, objective = parts(run)
    process = process.to(device)
    encoder.to(device)
    objective.to(device)
    encoder.prepare(process.sample(8192, 1).x)  # type: ignore[operator]
    averaged = copy.deepcopy(encoder)
    generator = torch.Generator(device).manual_seed(0)
    hidden = [p for name, p in encoder.named_parameters() if p.ndim == 2 and "blocks" in name and run["muon_lr"]]
    others = [p for p in encoder.parameters() if not any(p is matrix for matrix in hidden)]
    optimizers: list[tuple[torch.optim.Optimizer, float]] = [(torch.optim.Adam(others, run["lr"]), run["lr"])]
    if hidden:
        muon = torch.optim.Muon(hidden, run["muon_lr"], weight_decay=0.0, momentum=0.95)
        optimizers.append((muon, run["muon_lr"]))
    torch.set_float32_matmul_precision("high" if config.precision == "tf32" else "highest")
    gradual = [module for module in objective.modules() if isinstance(module, idt.Gradual)]
    curve, total = [], torch.zeros((), device=device)
    for step in range(config.steps):
        for number in gradual:
            number.value.fill_(number.value_at(step / config.steps))
        for optimizer, rate in optimizers:
            optimizer.param_groups[0]["lr"] = rate * config.decay(step)
        loss = objective.compute(encoder, process.sample(batch_at(run, step), generator)).loss
        encoder.zero_grad()
        loss.backward()
        for optimizer, _ in optimizers:
            optimizer.step()
        total += loss.detach()
        if run["average"]:
            with torch.no_grad():
                for mean, now in zip(averaged.parameters(), encoder.parameters(), strict=True):
                    mean.lerp_(now, 1 - min(run["average"], (step + 1) / (step + 10)))
        if (step + 1) % config.eval_every == 0:
            scored = averaged if run["average"] else encoder
            scores = idt.evaluate(process, scored, 4096, generator=step, device=device).scores
            curve.append([step + 1, scores["r2"], scores["mcc"], float(total) / config.eval_every])
            total.zero_()
    return curve


def batch_at(run: dict[str, Any], step: int) -> int:
    """The batch size of a step: the same throughout, or growing geometrically in three parts."""
    last = int(run["batch"])
    if not run["grow_from"]:
        return last
    first, part = int(run["grow_from"]), min(3 * step // int(run["steps"]), 2)
    return round(first * (last / first) ** (part / 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--again", default="", help="numbers of runs, separated by commas")
    parser.add_argument("--new", type=Path, help="a file with one run on each line")
    options = parser.parse_args()
    if options.new:
        for line in options.new.read_text(encoding="utf-8").splitlines():
            run, begin = json.loads(line), time.monotonic()
            data = train({**DEFAULTS, **run})
            curve = [[step, *(float(f"{value:.5g}") for value in rest)] for step, *rest in data.pop("curve")]
            seconds = round(time.monotonic() - begin, 1)
            print(json.dumps({**run, "seconds": seconds, **data, "curve": curve}), flush=True)
        return
    runs = [json.loads(line) for line in RUNS.read_text(encoding="utf-8").splitlines()]
    chosen = [int(number) for number in options.again.split(",") if number] or range(len(runs))
    for number in chosen:
        settings = {name: value for name, value in runs[number].items() if name != "curve"}
        _, r2, mcc, loss = (float("nan") if value is None else value for value in runs[number]["curve"][-1])
        print(f"{number:>3}  R² {r2:.4f}  MCC {mcc:.4f}  loss {loss:.4f}  {json.dumps(settings)}", flush=True)
        if options.again:
            evaluations = sum(step > 0 for step, *_ in runs[number]["curve"])
            _, r2, mcc, loss = train({**DEFAULTS, **runs[number], "evaluations": evaluations})["curve"][-1]
            print(f"now  R² {r2:.4f}  MCC {mcc:.4f}  loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
