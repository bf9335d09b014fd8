"""Samplers side by side in one run: on the CPU against numpy, on a GPU fused kernels against torch's operations.

    python benchmarks/samplers.py [--n 6144] [--dim 10] [--repeats 15]
    python benchmarks/samplers.py --device cuda [--n 1048576 6144] [--dim 10] [--repeats 15]

Prints median milliseconds for a batch of n draws, each around its own location, and the ratio. The numpy versions
are what one would write first: vectorised rejection that redraws what was refused. On the GPU a time is that of
a CUDA graph of several draws, replayed warm, between device events and divided by their number; beside it what
reading the locations and writing the draws takes at the full memory bandwidth.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

import identica as idt
from identica.distributions.fused import computing_by

#: Bytes per second between an H200 and its memory.
BANDWIDTH = 4.8e12
#: Draws in one graph: their time is then far above that of starting a graph.
DRAWS_PER_GRAPH = 10
SCALE, POWER, CONCENTRATIONS = 0.05, 3.0, (1.0, 10.0)
ANISOTROPIC = (5.0, 25.0)


def truncated_by_rows(draw: Callable[[tuple[int, ...]], np.ndarray], loc: np.ndarray) -> np.ndarray:
    """Redraw a whole row until all its coordinates lie in the box."""
    x = loc + draw(loc.shape)
    todo = np.flatnonzero(((x < 0) | (x > 1)).any(axis=1))
    while todo.size:
        x[todo] = loc[todo] + draw((todo.size, loc.shape[1]))
        todo = todo[((x[todo] < 0) | (x[todo] > 1)).any(axis=1)]
    return x


def truncated_by_coordinates(draw: Callable[[tuple[int, ...]], np.ndarray], loc: np.ndarray) -> np.ndarray:
    """Redraw only the coordinates that left the box."""
    loc, shape = loc.ravel(), loc.shape
    x = loc + draw(loc.shape)
    todo = np.flatnonzero((x < 0) | (x > 1))
    while todo.size:
        x[todo] = loc[todo] + draw(todo.shape)
        todo = todo[(x[todo] < 0) | (x[todo] > 1)]
    return x.reshape(shape)


def generalized_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Generalised normal noise: a gamma variable to the power 1/β with a random sign."""
    magnitude = rng.standard_gamma(1 / POWER, shape) ** (1 / POWER)
    return SCALE * magnitude * rng.choice((-1.0, 1.0), shape)


def von_mises_fisher(rng: np.random.Generator, loc: np.ndarray, kappa: float) -> np.ndarray:
    """Wood's rejection for the cosine, a tangent direction for the rest."""
    n, d = loc.shape
    b = (d - 1) / (2 * kappa + np.sqrt(4 * kappa**2 + (d - 1) ** 2))
    x0 = (1 - b) / (1 + b)
    c = kappa * x0 + (d - 1) * np.log(1 - x0**2)
    cosine, todo = np.empty(n), np.arange(n)
    while todo.size:
        z = rng.beta((d - 1) / 2, (d - 1) / 2, todo.size)
        w = (1 - (1 + b) * z) / (1 - (1 - b) * z)
        accept = kappa * w + (d - 1) * np.log(1 - x0 * w) - c >= np.log(rng.random(todo.size))
        cosine[todo[accept]] = w[accept]
        todo = todo[~accept]
    tangent = rng.standard_normal((n, d))
    tangent -= (tangent * loc).sum(axis=1, keepdims=True) * loc
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    return cosine[:, None] * loc + np.sqrt(1 - cosine**2)[:, None] * tangent


def shell(rng: np.random.Generator, loc: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Add noise, keep what stays within 0.1 of the sphere, project: the approximation of the published code."""
    x, todo = np.empty_like(loc), np.arange(len(loc))
    while todo.size:
        y = loc[todo] + deviation * rng.standard_normal((todo.size, loc.shape[1]))
        norm = np.linalg.norm(y, axis=1)
        accept = np.abs(norm - 1) < 0.1
        x[todo[accept]] = y[accept] / norm[accept, None]
        todo = todo[~accept]
    return x


def milliseconds(function: Callable[[], object], repeats: int) -> float:
    """Median over repeats, after two warm-up calls."""
    times = []
    for k in range(repeats + 2):
        begin = time.perf_counter()
        function()
        if k >= 2:
            times.append(time.perf_counter() - begin)
    return 1000 * statistics.median(times)


def captured_milliseconds(function: Callable[[], object], generator: torch.Generator, repeats: int) -> float:
    """Median milliseconds of one call, as part of a CUDA graph."""
    for _ in range(3):
        function()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        for _ in range(DRAWS_PER_GRAPH):
            function()
    times = []
    for k in range(repeats + 5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if k >= 5:
            times.append(begin.elapsed_time(end) / DRAWS_PER_GRAPH)
    return statistics.median(times)


def on_gpu(n: int, d: int, repeats: int, ways: Sequence[str] = ("torch", "triton")) -> None:
    """Every family, and the mixing; by torch's operations and by the fused kernels where there are some."""
    generator = torch.Generator("cuda").manual_seed(0)
    marginals = {"uniform on the sphere": idt.SphereUniform(d), "uniform in the box": idt.BoxUniform(d)}
    precision = tuple(torch.where(torch.arange(d) < d // 2, *ANISOTROPIC).tolist())
    around_sphere = {
        **{f"von Mises–Fisher κ={k:g}": idt.Conditional(idt.VonMisesFisher, concentration=k) for k in CONCENTRATIONS},
        "Fisher–Bingham Λ=5/25": idt.Conditional(idt.FisherBingham, precision=precision),
        "projected normal 0.05": idt.Conditional(idt.ProjectedNormal, scale=SCALE),
        "projected Laplace 0.05": idt.Conditional(idt.ProjectedLaplace, scale=SCALE),
        "projected GenNorm β=3 0.05": idt.Conditional(idt.ProjectedGeneralizedNormal, scale=SCALE, power=POWER),
    }
    around_box = {
        "truncated Laplace 0.05": idt.Conditional(idt.TruncatedLaplace, scale=SCALE),
        "truncated normal 0.05": idt.Conditional(idt.TruncatedNormal, scale=SCALE),
        "truncated GenNorm β=3 0.05": idt.Conditional(idt.TruncatedGeneralizedNormal, scale=SCALE, power=POWER),
        **{f"GenNorm β={b:g}": idt.Conditional(idt.GeneralizedNormal, scale=SCALE, power=b) for b in (1.0, 2.0, POWER)},
    }
    marginals = {name: marginal.to("cuda") for name, marginal in marginals.items()}
    sphere, box = (marginal.sample(n, generator) for marginal in marginals.values())
    mixing = idt.InvertibleMLP(d, seed=0, candidates=100).to("cuda")
    work: dict[str, tuple[Callable[[], object], int]] = {}
    for name, marginal in marginals.items():
        work[name] = (lambda marginal=marginal: marginal.sample(n, generator), 1)
    for loc, conditionals in ((sphere, around_sphere), (box, around_box)):
        for name, conditional in conditionals.items():
            conditional.prepare("cuda", torch.float32)
            work[name] = (lambda c=conditional, loc=loc: c.unchecked(loc).sample(generator=generator), 2)
    work["mixing, three layers"] = (lambda: mixing(box), 2)

    print(f"n = {n}, d = {d}, {torch.cuda.get_device_name()}, float32, medians of {repeats} replays")
    header = "".join(f"{'fused' if way == 'triton' else way:>9} [ms]" for way in ways)
    print(f"{'family':<28}{header}{'floor [ms]':>13}{'[M draws/s]':>14}")
    for name, (function, passes) in work.items():
        times = []
        for way in ways:
            with computing_by(way), torch.no_grad():  # type: ignore[arg-type]
                times.append(captured_milliseconds(function, generator, repeats))
        floor = 1e3 * passes * n * d * 4 / BANDWIDTH
        cells = "".join(f"{time:>14.4f}" for time in times)
        print(f"{name:<28}{cells}{floor:>13.4f}{n / times[-1] / 1e3:>14.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--n", type=int, nargs="+")
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    default = (6144,) if options.device == "cpu" else (2**20, 6144)
    for n in options.n or default:
        (on_cpu if options.device == "cpu" else on_gpu)(n, options.dim, options.repeats)


def on_cpu(n: int, d: int, repeats: int) -> None:
    """Ours against numpy's."""
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    box, sphere = idt.BoxUniform(d).sample(n, generator), idt.SphereUniform(d).sample(n, generator)
    box_np, sphere_np = box.double().numpy(), sphere.double().numpy()
    precision = torch.where(torch.arange(d) < d // 2, *ANISOTROPIC)
    deviation = (1 / precision.sqrt()).double().numpy()

    def laplace(shape: tuple[int, ...]) -> np.ndarray:
        return rng.laplace(0.0, SCALE, shape)

    def gennorm(shape: tuple[int, ...]) -> np.ndarray:
        return generalized_normal(rng, shape)

    def normal(shape: tuple[int, ...]) -> np.ndarray:
        return rng.normal(0.0, SCALE, shape)

    truncated = {
        "truncated Laplace 0.05": (idt.Conditional(idt.TruncatedLaplace, scale=SCALE), laplace),
        "truncated GenNorm β=3 0.05": (
            idt.Conditional(idt.TruncatedGeneralizedNormal, scale=SCALE, power=POWER),
            gennorm,
        ),
        "truncated normal 0.05": (idt.Conditional(idt.TruncatedNormal, scale=SCALE), normal),
    }
    rows: list[tuple[str, float, list[tuple[str, float]]]] = []

    def ours(conditional: idt.Conditional, loc: torch.Tensor) -> float:
        return milliseconds(lambda: conditional.unchecked(loc).sample(generator=generator), repeats)

    for name, (conditional, draw) in truncated.items():
        baselines = [
            ("per row", milliseconds(lambda draw=draw: truncated_by_rows(draw, box_np), repeats)),
            ("per coordinate", milliseconds(lambda draw=draw: truncated_by_coordinates(draw, box_np), repeats)),
        ]
        rows.append((name, ours(conditional, box), baselines))
    for kappa in CONCENTRATIONS:
        baseline = milliseconds(lambda kappa=kappa: von_mises_fisher(rng, sphere_np, kappa), repeats)
        conditional = idt.Conditional(idt.VonMisesFisher, concentration=kappa)
        rows.append((f"von Mises–Fisher κ={kappa:g}", ours(conditional, sphere), [("rejection", baseline)]))
    conditional = idt.Conditional(idt.FisherBingham, precision=precision)
    baseline = milliseconds(lambda: shell(rng, sphere_np, deviation), max(3, repeats // 3))
    rows.append(("Fisher–Bingham Λ=5/25", ours(conditional, sphere), [("shell (approximate)", baseline)]))

    print(f"n = {n}, d = {d}, {torch.get_num_threads()} threads, ours in float32, numpy in float64")
    print(f"medians of {repeats} calls [ms]")
    print(f"{'family':<28}{'ours':>8}   numpy")
    for name, mine, baselines in rows:
        others = "   ".join(f"{label} {value:.2f} ({value / mine:.1f}×)" for label, value in baselines)
        print(f"{name:<28}{mine:>8.2f}   {others}")


if __name__ == "__main__":
    main()
