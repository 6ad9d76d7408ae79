"""How fast are exact Hessians, their spectra and their index, against torch's own automatic differentiation?

One thread, each measurement in a process of its own (so that its peak memory is its own). Values are compared before
anything is timed: all entries at a small depth, some rows and the index at the full depth.

    OMP_NUM_THREADS=1 python benchmarks/exact_hessian.py --depth 96 --json benchmarks/results/exact_hessian.json
"""

import argparse
import json
import math
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from infinite_width_gram import environment
from torch import Tensor

from skiplens.theory import shortcut_hessian as theory

WIDTH, ROWS_AT_ONCE = 10, 200


def task(samples: int = 400) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, WIDTH, generator=generator, dtype=torch.float64)
    return x, torch.nn.functional.one_hot(torch.arange(samples) % WIDTH, WIDTH).double()


def near_zero(depth: int) -> Tensor:
    """0.1 times Xavier: small, but no block of the Hessian vanishes."""
    generator = torch.Generator().manual_seed(1)
    return 0.1 * torch.randn(depth, WIDTH, WIDTH, generator=generator, dtype=torch.float64) / WIDTH**0.5


def linear_loss() -> Callable[[Tensor], Tensor]:
    """The loss of the 2-shortcut linear network from second moments: autograd gets the same head start as we do."""
    moments = theory.second_moments(*task())

    def loss(params: Tensor) -> Tensor:
        h = torch.eye(WIDTH, dtype=torch.float64)
        for W_1, W_2 in theory.unflatten(params, WIDTH).unflatten(0, (-1, 2)):
            h = h + W_2 @ (W_1 @ h)
        return moments.loss(h)

    return loss


def closed_form(depth: int) -> Tensor:
    return theory.linear_hessian(theory.shortcut_units(near_zero(depth)), theory.second_moments(*task()))


def closed_form_again(depth: int) -> Callable[[], Tensor]:
    """Into a matrix that is already there, as for many Hessians along a training run."""
    units, moments, place = theory.shortcut_units(near_zero(depth)), theory.second_moments(*task()), closed_form(depth)
    return lambda: theory.linear_hessian(units, moments, out=place)


def new_pages(depth: int) -> Tensor:
    """What the system takes for handing out a matrix of this size, whatever is written into it."""
    return torch.empty(depth * WIDTH**2, depth * WIDTH**2, dtype=torch.float64).fill_(1.0)


def forward_over_reverse(depth: int) -> Tensor:
    """What torch.func.hessian does, in chunks so that it fits."""
    params, gradient = theory.flatten(near_zero(depth)), torch.func.grad(linear_loss())

    def row(direction: Tensor) -> Tensor:
        return torch.func.jvp(gradient, (params,), (direction,))[1]

    return torch.func.vmap(row, chunk_size=ROWS_AT_ONCE)(torch.eye(len(params), dtype=torch.float64))


def reverse_over_reverse(depth: int) -> Tensor:
    hessian = torch.func.jacrev(torch.func.grad(linear_loss()), chunk_size=ROWS_AT_ONCE)
    return hessian(theory.flatten(near_zero(depth)))


def some_rows(depth: int, rows: Tensor) -> Tensor:
    params = theory.flatten(near_zero(depth)).requires_grad_()
    (gradient,) = torch.autograd.grad(linear_loss()(params), params, create_graph=True)
    return torch.stack([torch.autograd.grad(gradient[row], params, retain_graph=True)[0] for row in rows.tolist()])


def eigenvalues(depth: int) -> Callable[[], Tensor]:
    matrix = closed_form(depth)
    return lambda: torch.linalg.eigvalsh(matrix)


def factored_index(depth: int) -> Callable[[], int]:
    matrix = closed_form(depth)
    return lambda: theory.count_negative(matrix)


def counted_index(depth: int) -> int:
    units, moments = theory.shortcut_units(near_zero(depth)), theory.second_moments(*task())
    return theory.linear_spectrum(units, moments).count_below(0.0)


def counted_statistics(depth: int) -> list[float]:
    """|λ|max, its 10 % quantile and the index, to eight digits, without the matrix."""
    units, moments = theory.shortcut_units(near_zero(depth)), theory.second_moments(*task())
    spectrum = theory.linear_spectrum(units, moments, accuracy=1e-8)
    return [spectrum.largest_absolute, spectrum.absolute_quantile(), spectrum.index]


def toeplitz_statistics(units: int) -> list[float]:
    spectrum = theory.hessian_at_zero(*task(), units, branch_depth=1).spectrum
    return [spectrum.largest, spectrum.smallest, spectrum.absolute_quantile(), spectrum.index]


def rectified_closed_form(depth: int) -> Tensor:
    return theory.rectified_hessian(near_zero(depth), *task(1000)).total()


def rectified_autograd(depth: int) -> Tensor:
    relu = theory.BranchActivations(mid="relu")
    x, y = task(1000)

    def loss(params: Tensor) -> Tensor:
        return theory.square_loss(theory.shortcut_outputs(theory.unflatten(params, WIDTH), x, 2, relu), y)

    return torch.func.jacrev(torch.func.grad(loss), chunk_size=50)(theory.flatten(near_zero(depth)))


def compare(depth: int) -> dict[str, float]:
    """Largest deviations of the ways from each other, before any is timed."""
    small = min(depth, 12)
    ours, theirs = closed_form(small), forward_over_reverse(small)
    rows = torch.linspace(0, depth * WIDTH**2 - 1, 12).long()
    relu = (rectified_closed_form(4) - rectified_autograd(4)).abs().max() / rectified_autograd(4).abs().max()
    full = closed_form(depth)
    deviations = {
        "all entries, depth 12": ((ours - theirs).abs().max() / theirs.abs().max()).item(),
        "12 rows, full depth": ((full[rows] - some_rows(depth, rows)).abs().max() / full.abs().max()).item(),
        "mid-ReLU, depth 4": relu.item(),
    }
    bad = {name: value for name, value in deviations.items() if not value <= 1e-12}
    assert not bad, f"values differ: {bad}"
    assert counted_index(small) == theory.count_negative(ours) == int((torch.linalg.eigvalsh(ours) < 0).sum())
    return deviations


def _run(function: Callable[[int], Any], depth: int, repeats: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    function(2)  # first calls load what torch loads lazily
    prepared = function(depth) if function in PREPARED else None
    before, runs = _forget_peak(), []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        result = prepared() if prepared is not None else function(depth)
        runs.append((time.process_time() - cpu, time.perf_counter() - wall))
        value = result if not isinstance(result, Tensor) else int((result < 0).sum()) if result.ndim == 1 else None
        del result
    best = min(runs)
    return {"cpu_s": best[0], "wall_s": best[1], "extra_peak_mib": (_peak() - before) / 1024, "value": value}


def _forget_peak() -> int:
    """Start counting the peak anew (a child of a large process is born with its parent's); Linux only."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


PREPARED = (eigenvalues, factored_index, closed_form_again)  # timed without building the matrix
INDICES = ("eigenvalues", "factored_index", "counted_index")  # ways that must count alike


def measure(function: Callable[[int], Any], depth: int, repeats: int) -> dict[str, Any]:
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as child:
        return {"what": function.__name__, "depth": depth, **child.submit(_run, function, depth, repeats).result()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=96)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="*", help="names of rows to measure; all by default")
    options = parser.parse_args()
    torch.set_num_threads(1)
    deviations = compare(options.depth)
    wanted = [row for row in rows(options.depth) if not options.only or row[0].__name__ in options.only]
    report(options, deviations, [measure(*row) for row in wanted])


def rows(depth: int) -> list[tuple[Callable[[int], Any], int, int]]:
    """What is measured, at which depth, and how often (the best counts)."""
    return [
        (new_pages, depth, 3),
        (closed_form, depth, 3),
        (closed_form_again, depth, 3),
        (forward_over_reverse, depth, 1),
        (reverse_over_reverse, depth, 1),
        (eigenvalues, depth, 1),
        (factored_index, depth, 1),
        (counted_index, depth, 3),
        (counted_statistics, depth, 1),
        (toeplitz_statistics, 10_000, 1),
        (rectified_closed_form, 16, 3),
        (rectified_autograd, 16, 1),
    ]


def ratios(cpu: dict[str, float]) -> dict[str, float]:
    """How many times faster, in CPU time; NaN where a row was left out."""
    cpu = defaultdict(lambda: math.nan, cpu)
    theirs, fastest, ours = cpu["forward_over_reverse"], cpu["reverse_over_reverse"], cpu["closed_form"]
    spectrum = ours + cpu["eigenvalues"]
    return {
        "Hessian: torch.func.hessian / ours": theirs / ours,
        "Hessian: torch.func.hessian / ours, matrix kept": theirs / cpu["closed_form_again"],
        "Hessian: fastest autograd / ours": fastest / ours,
        "Hessian: fastest autograd / ours, matrix kept": fastest / cpu["closed_form_again"],
        "spectrum: torch.func.hessian + eigvalsh / ours": (theirs + cpu["eigenvalues"]) / spectrum,
        "statistics: our spectrum / our counts": spectrum / cpu["counted_statistics"],
        "index: our spectrum / our count": spectrum / cpu["counted_index"],
        "index: our spectrum / LDL of the matrix": spectrum / (ours + cpu["factored_index"]),
        "mid-ReLU Hessian: autograd / ours": cpu["rectified_autograd"] / cpu["rectified_closed_form"],
    }


def report(options: argparse.Namespace, deviations: dict[str, float], rows: list[dict[str, Any]]) -> None:
    counts = {row["what"]: row["value"] for row in rows if row["what"] in INDICES}
    assert len(set(counts.values())) <= 1, f"indices differ: {counts}"
    factors = ratios({row["what"]: row["cpu_s"] for row in rows})
    print(f"{'what':26}{'depth':>7}{'CPU s':>10}{'wall s':>10}{'extra MiB':>11}")
    for row in rows:
        print(f"{row['what']:26}{row['depth']:7}{row['cpu_s']:10.3f}{row['wall_s']:10.3f}{row['extra_peak_mib']:11.0f}")
    for name, factor in factors.items():
        print(f"{name}: {factor:.1f} times")
    known = {name: factor for name, factor in factors.items() if not math.isnan(factor)}
    record = {"environment": environment(), "deviations": deviations, "rows": rows, "ratios": known}
    print(json.dumps(record))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
