"""Do residual networks get deeper as they train? Path spectra before, during and after training, on real images.

    python benchmarks/depth_during_training.py [--preset smoke|laptop|wide] [--device cuda] [--workers 14]
                                               [--images FILE.npz] [--out FILE.json]

Every run trains a network of identity blocks on the first images of MNIST or CIFAR-10 and follows the path spectrum of
its logits on held-out images: without the mean over classes (`logits_…`), and without the mean over images too (all
others). One row a run; the table that is printed has the mean over seeds with its standard error. `--save-images FILE`
writes the images for a machine that cannot fetch them.
"""

import argparse
import dataclasses
import itertools
import json
import math
import multiprocessing
import time
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from measuring import environment, show
from scipy.special import stdtrit
from torch import nn

from skiplens import data
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.report.during_training.depth import DepthMoment, DepthOptions
from skiplens.report.during_training.depth_reading import DepthHistory
from skiplens.report.during_training.measurer import MeasureAlong, Measurer
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run.

    branch: "relu" is x + R(Wx), "two_layer" is x + V R(Wx), "post" is R(x + V R(Wx)).
    norm: "none", or "batch" for batch norm behind each matrix (the last one's weight is the block's scale λ).
    start: gain of the branches at the start: their He weights times it, or, with batch norm, λ.
    """

    data: str
    kind: str  # "conv" or "dense"
    branch: str
    norm: str
    start: str
    blocks: int
    seed: int
    width: int = 32
    train: int = 10000
    steps: int = 800
    every: int = 200
    batch: int = 128
    probe: int = 64
    pool: int = 1  # images are averaged over squares of this many pixels

    @property
    def gain(self) -> float:
        return {"1": 1.0, "0.2": 0.2, "0": 0.0, "1/sqrt(L)": self.blocks**-0.5, "1/L": 1 / self.blocks}[self.start]

    @property
    def rate(self) -> float:
        return 0.05 if self.norm == "batch" else 0.03 / self.blocks


class Block(nn.Module):
    """x + branch(x)."""

    def __init__(self, run):
        super().__init__()
        dense, self.post = run.kind == "dense", run.branch == "post"
        self.matrices = nn.ModuleList(
            nn.Linear(run.width, run.width, bias=False)
            if dense
            else nn.Conv2d(run.width, run.width, 3, padding=1, bias=False)
            for _ in range(1 if run.branch == "relu" else 2)
        )
        norm = nn.BatchNorm1d if dense else nn.BatchNorm2d
        normed = run.norm == "batch"
        self.norms = nn.ModuleList(norm(run.width) if normed else nn.Identity() for _ in self.matrices)

    def forward(self, x):
        if len(self.matrices) == 1:
            return x + self.norms[0](torch.relu(self.matrices[0](x)))  # the norm behind the ReLU, as in equation 20
        branch = torch.relu(self.norms[0](self.matrices[0](x)))
        joined = x + self.norms[1](self.matrices[1](branch))
        return torch.relu(joined) if self.post else joined


def build(run, channels, size):
    """Stem, blocks of one width, head; weights drawn from the run's seed."""
    if run.kind == "dense":
        stem = nn.Sequential(nn.Flatten(), nn.Linear(channels * size * size, run.width, bias=False), nn.ReLU())
        head = nn.Linear(run.width, 10)
    else:
        stem = nn.Sequential(nn.Conv2d(channels, run.width, 3, stride=2, padding=1, bias=False), nn.ReLU())
        head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(run.width, 10))
    model = nn.Sequential(stem, *(Block(run) for _ in range(run.blocks)), head)
    generator = Randomness(run.seed).child("weights").torch()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                fan_in = parameter[0].numel()
                parameter.normal_(0, math.sqrt(2 / fan_in), generator=generator)
        for block in model[1:-1]:
            last = block.norms[-1] if run.norm == "batch" else block.matrices[-1]
            last.weight.mul_(run.gain)
    return model


def images(name, count, file):
    """The first `count` training images and 1000 test images, standardised, with their classes."""
    if file:
        arrays = np.load(file)
        parts = [arrays[f"{name}_{part}"] for part in ("train_x", "train_y", "test_x", "test_y")]
    else:
        parts = fetched(name, count)
    x, y, test_x, test_y = parts
    x, test_x = (torch.from_numpy(part).float() for part in (x[:count], test_x[:1000]))
    mean, deviation = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    y, test_y = (torch.from_numpy(part).long() for part in (y[:count], test_y[:1000]))
    return (x - mean) / deviation, y, (test_x - mean) / deviation, test_y


def fetched(name, count):
    """The same images from the data sets, as bytes."""
    bare = data.LoadOptions(standardise=False)
    batches = [data.load(name, bare).first(count), data.load(f"{name}:test", bare).first(2000)]
    pixels = [(255 * batch.inputs).round().byte().numpy() for batch in batches]
    classes = [batch.targets.byte().numpy() for batch in batches]
    return [pixels[0], classes[0], pixels[1], classes[1]]


def measured(job):
    """One run: history, accuracies, time."""
    run, options = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    x, y, test_x, test_y = images(run.data, run.train, options["images"])
    x, test_x = (nn.functional.avg_pool2d(part, run.pool) for part in (x, test_x))
    device = torch.device(options["device"])
    model = build(run, x.shape[1], x.shape[2]).to(device)
    x, y, test_x, test_y = (part.to(device) for part in (x, y, test_x, test_y))
    recipe = Recipe(
        learning_rate=run.rate,
        momentum=0.9,
        batch_size=run.batch,
        steps=run.steps,
        schedule="cosine",
        seed=run.seed,
    )
    probe = Batch(test_x[: run.probe], test_y[: run.probe])
    looks = {name: look(recipe, probe, name == "told_apart") for name in ("logits", "told_apart")}
    steps = tuple(range(0, run.steps + 1, run.every))
    measurers = {name: Measurer(MeasureAlong(moment, at_steps=steps)) for name, moment in looks.items()}
    before = accuracy(model, test_x, test_y)
    outcome = train(model, (x, y), recipe, callbacks=list(measurers.values()))
    history = DepthHistory.joined([one.value for one in measurers["logits"].taken.values()])
    apart = DepthHistory.joined([one.value for one in measurers["told_apart"].taken.values()])
    return {
        **dataclasses.asdict(run),
        "outcome": outcome.outcome,
        "accuracy": [before, accuracy(model, test_x, test_y)],
        "final_training_loss": float(outcome.losses[-20:].mean()),
        "at": list(measurers["logits"].taken),
        "mean_depth": apart.mean_depth.tolist(),
        "peak_depth": apart.peak_depth.tolist(),
        "coherent_depth": apart.coherent_depth.tolist(),
        "laws": list(apart.laws),
        "logits_mean_depth": history.mean_depth.tolist(),
        "logits_coherent_depth": history.coherent_depth.tolist(),
        "mean_scale": history.scales.mean(1).tolist(),
        "weight_scale": history.weight_scale.tolist(),
        "spectrum": [apart.distribution[0].tolist(), apart.distribution[-1].tolist()],
        "seconds": time.perf_counter() - began,
    }


def look(recipe, probe, apart):
    """What is measured of the model: the path spectrum of its logits on the probe."""
    return DepthMoment(probe, recipe.loss, recipe.learning_rate, DepthOptions(forces=False, centre_samples=apart))


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    right = sum(
        int((model(part).argmax(1) == classes).sum()) for part, classes in zip(x.split(500), y.split(500), strict=True)
    )
    model.train()
    return right / len(y)


QUANTITIES = (
    "mean_depth",
    "peak_depth",
    "coherent_depth",
    "logits_mean_depth",
    "logits_coherent_depth",
    "mean_scale",
    "weight_scale",
)
SETTING = ("data", "kind", "branch", "norm", "start", "blocks")
WIDE = (
    ("relu", "none", "1/L"),
    ("relu", "batch", "1"),
    ("relu", "batch", "0.2"),
    ("two_layer", "none", "1/L"),
    ("two_layer", "batch", "1"),
    ("two_layer", "batch", "0"),
    ("post", "batch", "1"),
)


def grid(preset):
    """The runs of a preset: all settings of a seed before the next seed, the longest first."""
    if preset == "smoke":
        small = {"width": 4, "train": 64, "steps": 4, "every": 2, "batch": 16, "probe": 8}
        return [Run("mnist", "conv", *case, 2, 0, **small) for case in WIDE[:2]]
    found = []
    if preset == "laptop":
        conv = {"width": 8, "train": 2000, "steps": 200, "every": 100, "batch": 64, "pool": 4}
        dense = conv | {"width": 32, "pool": 2}
        cases = [("relu", "none", "1/L"), *((branch, "batch", "1") for branch in ("relu", "two_layer", "post"))]
        more = [("two_layer", "none", "1/L"), ("relu", "none", "1/sqrt(L)")]
        for seed in range(3):
            found += [Run("mnist", "conv", *case, 8, seed, **conv) for case in cases + more]
            found += [Run("mnist", "dense", *case, 9, seed, **dense) for case in cases[:3] + more]
            found += [Run("cifar10", "conv", *case, 8, seed, **conv) for case in cases]
        return sorted(found, key=lambda run: run.seed)
    for seed, (branch, norm, start) in itertools.product(range(5), WIDE):
        for name, blocks in itertools.product(("mnist", "cifar10"), (6, 18)):
            found.append(Run(name, "conv", branch, norm, start, blocks, seed, steps=500, every=125))
        if branch != "post":
            found.append(Run("mnist", "dense", branch, norm, start, 9, seed, width=128, steps=500, every=125))
    return sorted(found, key=lambda run: (run.seed, -run.blocks * len(run.branch)))


def summary(rows):
    """One row a setting: depth before and after with standard errors over seeds, and what the difference says."""
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in SETTING)].append(row)
    table = []
    for key, group in sorted(groups.items(), key=str):
        good = [row for row in group if row["outcome"] == "finished"]
        line = dict(zip(SETTING, key, strict=True)) | {"seeds": len(good), "diverged": len(group) - len(good)}
        if len(good) > 1:
            for name in QUANTITIES:
                values = np.array([[row[name][0], row[name][-1]] for row in good], float)
                line |= {f"{name}_before": values[:, 0].mean(), f"{name}_after": values[:, 1].mean()}
                change = values[:, 1] - values[:, 0]
                line[f"{name}_change_error"] = change.std(ddof=1) / len(change) ** 0.5
            line["accuracy"] = float(np.mean([row["accuracy"][1] for row in good]))
            line["word"] = word(line)
            laws = [row["laws"] for row in good]
            line["law_before"], line["law_after"] = (most([law[end] for law in laws]) for end in (0, -1))
        table.append(line)
    return table


def word(line):
    """Grows or falls where Student's test of the change over seeds says so at 95 %, else unclear."""
    change = line["mean_depth_after"] - line["mean_depth_before"]
    if abs(change) <= stdtrit(line["seeds"] - 1, 0.975) * line["mean_depth_change_error"]:
        return "unclear"
    return "grows" if change > 0 else "falls"


def most(words):
    return max(sorted(set(words)), key=words.count)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=("smoke", "laptop", "wide"), default="laptop")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--images", help="npz with the images; fetched if not given")
    parser.add_argument("--save-images", help="write such a file and stop")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which no run is waited for")
    parser.add_argument("--out")
    options = parser.parse_args()
    if options.save_images:
        parts = {}
        for name in ("mnist", "cifar10"):
            keys = (f"{name}_{part}" for part in ("train_x", "train_y", "test_x", "test_y"))
            parts |= dict(zip(keys, fetched(name, 10000), strict=True))
        np.savez_compressed(options.save_images, **parts)
        return
    rows = collected(grid(options.preset), options)
    table = summary(rows)
    keys = (
        "data",
        "kind",
        "branch",
        "norm",
        "start",
        "blocks",
        "seeds",
        "mean_depth_before",
        "mean_depth_after",
        "word",
    )
    show([{key: line.get(key, "") for key in keys} for line in table])
    used = {key: getattr(options, key) for key in ("preset", "device", "workers", "limit")}
    result = {"environment": environment(), "options": used, "summary": table, "rows": rows}
    if options.out:
        Path(options.out).write_text(json.dumps(result))
    print(f"{len(rows)} runs, {sum(row['seconds'] for row in rows):.0f} s of runs")


def collected(runs, options):
    """The rows of all runs that end within the limit."""
    jobs = [(run, {"images": options.images, "device": options.device}) for run in runs]
    if options.workers == 1:
        return [measured(job) for job in jobs]
    rows, began = [], time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        pending = pool.imap_unordered(measured, jobs)
        for _ in jobs:
            try:
                rows.append(pending.next(timeout=max(1.0, options.limit - (time.perf_counter() - began))))
            except multiprocessing.TimeoutError:
                print(f"stopped after {len(rows)} of {len(jobs)} runs: the time is over")
                break
        pool.terminate()
    return rows


if __name__ == "__main__":
    main()
