"""How well readings at the start order the networks of NAS-Bench-201 by their published accuracy.

    python -m benchmarks.trainability.nasbench nasbench201.csv --processes 16           # on 16 cores
    python -m benchmarks.trainability.nasbench nasbench201.csv --processes 8 --device cuda
    python -m benchmarks.trainability.nasbench nasbench201.csv --report                 # the table from what is stored

The file has a row for each cell: `cell`, `validation_accuracy` and published readings. Ours are taken on 64 images of
CIFAR-10 at one draw of the weights and are kept in `results/nasbench201.csv`; the same command goes on after an
interruption. Readings are joined as AZ-NAS and VKDNW do it, by the sum of the logarithms of their ranks; which ones is
chosen on one half of the cells and judged on the other.
"""

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.trainability.cell_readings import read_cell
from benchmarks.trainability.cells import CellNetwork
from benchmarks.trainability.judging import ranks, spearman
from benchmarks.trainability.pool import append_rows, read_rows, shared_out
from benchmarks.trainability.tasks import task

STORED = Path(__file__).parent / "results" / "nasbench201.csv"
READINGS = (
    "parameters",
    "layers",
    "multiply-adds",
    "gradient norm",
    "SNIP",
    "SynFlow",
    "NASWOT",
    "Jacobian covariance",
    "ZiCo",
    "expressivity",
    "progressivity",
    "trainability",
    "features alike",
    "ReLU flips",
    "kernel size",
    "kernel rank",
    "kernel condition",
    "kernel alignment",
    "Fisher entropy",
    "VKDNW",
)
JOINED = {
    "AZ-NAS": ("expressivity", "progressivity", "trainability", "multiply-adds"),
    "VKDNW, joined": ("VKDNW", "Jacobian covariance", "expressivity", "trainability", "multiply-adds"),
    "parameters and Jacobian covariance": ("parameters", "Jacobian covariance"),
}
"""Readings that are joined as published, and the best pair of the published numbers."""
MOST_READINGS = 4
Values = NDArray[np.float64]


def measure(cell: str, device: str = "cpu") -> list[dict[str, str]]:
    """The readings of one cell, as a row."""
    work = task("cifar10")
    inputs, targets = (tensor.to(device) for tensor in next(work.batches(0)))
    torch.manual_seed(0)
    found = read_cell(CellNetwork(cell).to(device), inputs, targets)
    return [{"cell": cell} | {name: f"{found[name]:.7g}" for name in READINGS}]


def joined_ranks(readings: Sequence[Values]) -> Values:
    """Σ ln rank over the readings; a reading that is not there has the lowest rank."""
    total = np.zeros(len(readings[0]))
    for reading in readings:
        total += np.log(ranks(np.where(np.isnan(reading), -np.inf, reading)))
    return total


def chosen_readings(readings: Mapping[str, Values], accuracy: Values, most: int = MOST_READINGS) -> tuple[str, ...]:
    """The readings whose joined ranks follow the accuracy best, added one by one as long as that helps."""
    best = -math.inf
    chosen: tuple[str, ...] = ()
    while len(chosen) < most:
        tries = {name: (*chosen, name) for name in readings if name not in chosen}
        found = {n: spearman(joined_ranks([readings[k] for k in names]), accuracy) for n, names in tries.items()}
        name = max(found, key=lambda n: found[n])
        if found[name] <= best:
            break
        best, chosen = found[name], tries[name]
    return chosen


def split_report(readings: Mapping[str, Values], accuracy: Values, seed: int = 0) -> list[tuple[str, float, float]]:
    """For each half of the cells: what was chosen on it, Spearman there and on the other half."""
    order = np.random.default_rng(seed).permutation(len(accuracy))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    rows = []
    for here, there in (halves, halves[::-1]):
        names = chosen_readings({name: values[here] for name, values in readings.items()}, accuracy[here])
        on = [spearman(joined_ranks([readings[n][half] for n in names]), accuracy[half]) for half in (here, there)]
        rows.append((" + ".join(names), on[0], on[1]))
    return rows


def report(file: Path, stored: Path) -> str:
    """Spearman with the accuracy: each reading beside its published form, joined ones, and what two halves choose."""
    with file.open(newline="", encoding="utf-8") as stream:
        published = {row["cell"]: row for row in csv.DictReader(stream)}
    rows = [row for row in read_rows(stored) if row["cell"] in published]
    if len(rows) < 4:
        raise SystemExit(f"{stored} has {len(rows)} cells of {file}; measure at least 4 first.")
    accuracy = np.array([float(published[row["cell"]]["validation_accuracy"]) for row in rows])
    ours = {name: np.array([float(row[name]) for row in rows]) for name in READINGS}
    lines = [f"{len(rows)} cells", "", f"{'reading':36}{'ours':>8}{'published':>11}"]
    for name, values in ours.items():
        column = PUBLISHED.get(name)
        beside = "" if column is None else f"{spearman(_column(published, rows, column), accuracy):11.3f}"
        lines.append(f"{name:36}{spearman(np.nan_to_num(values, nan=-np.inf), accuracy):8.3f}{beside}")
    for name, parts in JOINED.items():
        beside = ""
        if all(part in PUBLISHED for part in parts):
            theirs = [_column(published, rows, PUBLISHED[part]) for part in parts]
            beside = f"{spearman(joined_ranks(theirs), accuracy):11.3f}"
        lines.append(f"{name:36}{spearman(joined_ranks([ours[part] for part in parts]), accuracy):8.3f}{beside}")
    lines += ["", "chosen on one half, judged on the other:"]
    lines += [f"  {here:.3f} -> {there:.3f}  {names}" for names, here, there in split_report(ours, accuracy)]
    return "\n".join(lines)


PUBLISHED = {
    "parameters": "params",
    "multiply-adds": "flops",
    "gradient norm": "grad_norm",
    "SNIP": "snip",
    "SynFlow": "synflow",
    "NASWOT": "nwot",
    "Jacobian covariance": "jacov",
}


def _column(published: Mapping[str, Mapping[str, str]], rows: Sequence[Mapping[str, str]], name: str) -> Values:
    return np.array([float(published[row["cell"]][name]) for row in rows])


def main() -> None:
    """Measure what is not stored yet, then print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="nasbench201.csv")
    parser.add_argument("--stored", type=Path, default=STORED)
    parser.add_argument("--cells", type=int, help="only the first ones")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--report", action="store_true", help="only print what is stored")
    settings = parser.parse_args()
    if not settings.report:
        with settings.file.open(newline="", encoding="utf-8") as stream:
            cells = [row["cell"] for row in csv.DictReader(stream)][: settings.cells]
        done = {row["cell"] for row in read_rows(settings.stored)}
        left = [cell for cell in cells if cell not in done]
        task("cifar10")  # one process reads the images and stores them for all
        results = shared_out(partial(measure, device=settings.device), left, settings.processes)
        for number, rows in enumerate(append_rows(settings.stored, ("cell", *READINGS), results), 1):
            print(f"{number} of {len(left)}: {rows[0]['cell']}", flush=True)
    print(report(settings.file, settings.stored))


if __name__ == "__main__":
    main()
