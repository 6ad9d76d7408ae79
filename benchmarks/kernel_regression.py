"""What accuracy do residual tangent kernels reach on all of MNIST and CIFAR-10, and what does exact regression cost?

    python benchmarks/kernel_regression.py --data FILE.npz [FILE.npz ...] [--device cuda] [--json FILE]
    python benchmarks/kernel_regression.py --save-data FOLDER       # the data sets in files of at most 40 MiB

Kernel ridge regression to the classes' indicators, by Cholesky factorisation in float64. Architecture, depth, branch
scale, ridge and the preparation of the inputs are chosen on the last 10,000 training images: each candidate is fitted
to the first `--select` images, so it has not seen them. The best candidate of each architecture is then fitted to
the first `--samples` images and its accuracy on the 10,000 test images recorded; no choice is made there. Every image
is scaled to ‖x‖² = d, so a normalised kernel has ones on its diagonal and a ridge means the same for all.
"""

import argparse
import itertools
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from measuring import environment, show

from skiplens import data
from skiplens.base.errors import DidNotConverge
from skiplens.kernels.architectures import DenseNetKernel, ResNetKernel, VanillaKernel
from skiplens.kernels.sklearn_kernel import ridge_weights

CLASSES, PART_BYTES = 10, 40 * 2**20
RIDGES = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
PUBLISHED = {
    "cifar10": "59.63 % (tangent kernel) and 58.92 % (NNGP), the best fully connected kernels of Yang, Santacroce & Hu "
    "2022, table 1, on all 50,000 training images",
    "mnist": "none found in a source that could be read",
}


@dataclass(frozen=True)
class Candidate:
    """One choice of the hyper-parameters."""

    architecture: str
    depth: int
    branch_scale: float
    quantity: str
    whiten: float
    ridge: float = 0.0

    def kernel(self):
        """The function from inputs to their kernel matrix."""
        if self.architecture == "resnet":
            made = ResNetKernel(self.depth, 2, self.branch_scale, trained="all", normalise=True)
        else:
            family = {"densenet": DenseNetKernel, "vanilla": VanillaKernel}[self.architecture]
            made = family(self.depth, trained="all", normalise=True)
        return getattr(made, self.quantity)


def candidates(quick):
    """All that is tried but the ridge; a plain network's depth counts its matrices between first and last layer."""
    whitenings = (0.0,) if quick else (0.0, 1.0, 0.1)
    resnets = itertools.product((2, 10), (0.3,)) if quick else itertools.product((1, 3, 10, 30), (0.1, 0.3, 1.0))
    shapes = [("resnet", depth, scale) for depth, scale in resnets]
    shapes += [("densenet", depth, 0.0) for depth in ((3,) if quick else (2, 5, 20))]
    shapes += [("vanilla", depth, 0.0) for depth in ((2,) if quick else (1, 2, 3, 5))]
    quantities = ("ntk",) if quick else ("ntk", "nngp")
    return [
        Candidate(*shape, quantity, whiten)
        for whiten, shape, quantity in itertools.product(whitenings, shapes, quantities)
    ]


class Prepared:
    """The images of one data set as kernel inputs: centred, whitened as far as asked, of equal length."""

    def __init__(self, parts, options):
        self.train, self.labels, self.test, self.test_labels = (part.to(options.device) for part in parts)
        self.held_out = slice(len(self.train) - options.validation, None)
        self.select, self.samples = slice(options.select), slice(options.samples)
        if options.select > self.held_out.start:
            raise SystemExit(f"--select {options.select} reaches into the {options.validation} images held out.")
        self._whitenings = {}

    def inputs(self, images, strength):
        """Rows of norm √d in float64; `strength` is the regularisation of the whitening, 0 for none."""
        mean, turn = self._statistics(strength)
        centred = images.flatten(1).double() / 255 - mean
        rows = centred if turn is None else centred @ turn
        return rows / rows.norm(dim=1, keepdim=True) * rows.shape[1] ** 0.5

    def _statistics(self, strength):
        """Mean and the regularised ZCA matrix, of the training images without those held out."""
        if strength not in self._whitenings:
            pixels = self.train[: self.held_out.start].flatten(1).double() / 255
            mean = pixels.mean(0)
            turn = None
            if strength:
                values, vectors = torch.linalg.eigh((pixels - mean).T @ (pixels - mean) / len(pixels))
                turn = (vectors / (values.clamp(min=0) + strength * values.mean()).sqrt()) @ vectors.T
            self._whitenings[strength] = mean, turn
        return self._whitenings[strength]


def indicators(labels):
    """+0.9 for an image's class and −0.1 for the others, so that the targets of an image add up to zero."""
    return torch.nn.functional.one_hot(labels, CLASSES).double() - 1 / CLASSES


def accuracy(outputs, labels):
    return float((outputs.argmax(1) == labels).double().mean())


def validated(candidate, prepared):
    """The best ridge of the candidate and its accuracy on the images held out."""
    inputs = prepared.inputs(prepared.train[prepared.select], candidate.whiten)
    held_out = prepared.inputs(prepared.train[prepared.held_out], candidate.whiten)
    kernel, targets = candidate.kernel(), indicators(prepared.labels[prepared.select])
    K, across = kernel(inputs), kernel(held_out, inputs)
    found = []
    for ridge in RIDGES:
        try:
            weights = ridge_weights(K, targets, ridge)
        except DidNotConverge:
            continue
        found.append((accuracy(across @ weights, prepared.labels[prepared.held_out]), ridge))
    best = max(found)
    return {**asdict(replace(candidate, ridge=best[1])), "validation": best[0]}


def fitted(choice, prepared):
    """The candidate fitted to all training images: times, memory and what it gets right on the test images."""
    candidate = Candidate(**{name: choice[name] for name in Candidate.__dataclass_fields__})
    clock = Clock(prepared.train.device)
    inputs = prepared.inputs(prepared.train[prepared.samples], candidate.whiten)
    targets = prepared.labels[prepared.samples]
    test = prepared.inputs(prepared.test, candidate.whiten)
    K = clock.timed("kernel_s", candidate.kernel(), inputs)
    weights = clock.timed("solve_s", ridge_weights, K, indicators(targets), candidate.ridge)
    del K
    outputs = clock.timed("predict_s", candidate.kernel(), test, inputs) @ weights
    error = float((outputs - indicators(prepared.test_labels)).square().sum(1).mean())
    row = {**choice, "samples": len(inputs), "test": accuracy(outputs, prepared.test_labels), "test_squares": error}
    return {**row, **clock.seconds, "peak_gib": clock.peak_gibibytes()}


class Clock:
    """Seconds of each part, after the device has finished it."""

    def __init__(self, device):
        self.cuda, self.seconds = device.type == "cuda", {}
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()

    def timed(self, name, function, *arguments):
        start = time.perf_counter()
        result = function(*arguments)
        if self.cuda:
            torch.cuda.synchronize()
        self.seconds[name] = time.perf_counter() - start
        return result

    def peak_gibibytes(self):
        return torch.cuda.max_memory_allocated() / 2**30 if self.cuda else None


def studied(name, parts, options):
    """All candidates on the images held out, then the best of each architecture on the test images."""
    prepared = Prepared(parts, options)
    tried = []
    for candidate in candidates(options.quick):
        tried.append(validated(candidate, prepared))
        print(json.dumps(tried[-1]), flush=True)
    rows = []
    for family in dict.fromkeys(row["architecture"] for row in tried):
        best = max((row for row in tried if row["architecture"] == family), key=lambda row: row["validation"])
        rows.append({"data": name, **fitted(best, prepared)})
        print(json.dumps(rows[-1]), flush=True)
    return rows, [{"data": name, **row} for row in tried]


def saved(folder):
    """Write both data sets as bytes, in files that are small enough to travel."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, split in itertools.product(("mnist", "cifar10"), ("train", "test")):
        images = data.get(name, split=split)
        step = max(1, PART_BYTES // images.images[0].numel())
        for number, start in enumerate(range(0, len(images), step)):
            part = slice(start, start + step)
            file = folder / f"{name}-{split}-{number}.npz"
            np.savez_compressed(file, images=images.images[part].numpy(), labels=images.labels[part].numpy())
            print(file, f"{file.stat().st_size / 2**20:.1f} MiB")


def loaded(files):
    """The data sets in the files: by name, training images and labels, test images and labels."""
    parts = {}
    for file in sorted(files, key=lambda file: (file.stem.rpartition("-")[0], int(file.stem.rpartition("-")[2]))):
        name, split, _ = file.stem.split("-")
        with np.load(file) as content:
            for kind in ("images", "labels"):
                parts.setdefault(name, {}).setdefault((split, kind), []).append(torch.from_numpy(content[kind]))
    order = [("train", "images"), ("train", "labels"), ("test", "images"), ("test", "labels")]
    return {name: [torch.cat(found[key]) for key in order] for name, found in parts.items()}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", default=[], help="files that --save-data wrote")
    parser.add_argument("--save-data", type=Path, metavar="FOLDER")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--samples", type=int, default=50_000, help="training images of the final fit")
    parser.add_argument("--select", type=int, default=10_000, help="training images while hyper-parameters are chosen")
    parser.add_argument("--validation", type=int, default=10_000, help="training images held out for that choice")
    parser.add_argument("--quick", action="store_true", help="a handful of candidates")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main():
    options = arguments()
    if options.save_data:
        saved(options.save_data)
        return
    rows, tried = [], []
    for name, parts in loaded(options.data).items():
        found = studied(name, parts, options)
        rows, tried = rows + found[0], tried + found[1]
    show(rows)
    device = torch.cuda.get_device_name() if options.device == "cuda" else None
    settings = {name: getattr(options, name) for name in ("samples", "select", "validation")} | {"device": device}
    record = {"environment": environment(), **settings, "published": PUBLISHED, "rows": rows, "tried": tried}
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
