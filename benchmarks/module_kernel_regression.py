"""What accuracy does the tangent kernel of a Myrtle-like module reach on few images of CIFAR-10, and what does it cost?

    python benchmarks/kernel_regression.py --save-data FOLDER
    python benchmarks/module_kernel_regression.py --data FOLDER/cifar10-*.npz --device cuda --json FILE

Four convolutions of 3 × 3 with ReLU, average pooling behind the second and the third, global pooling and a linear
layer: five layers, after the Myrtle networks of Shankar et al. 2020, Neural Kernels Without Tangents. Pixels are
centred and scaled by the training images. Kernel ridge regression to the classes' indicators in float64; the ridge is
relative to the mean diagonal and chosen on the last fifth of the training images. With `--store FOLDER` strips of the
matrices are kept there and a killed run goes on; with `--seconds` no test image is begun later, and those that were
told count; with `--pixels 8` images are averaged to 8 × 8, to try it on a CPU.
With `--readout flatten` nothing is pooled, so that only equal positions are carried: 1,024 numbers per pair of images
of 32 × 32 pixels instead of 1,048,576.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
from kernel_regression import accuracy, indicators, loaded
from measuring import environment, show
from torch import nn

from skiplens.kernels import infinite_width
from skiplens.kernels.sklearn_kernel import ridge_weights

RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


def myrtle(width=8, pixels=32, readout="pooling"):
    """The module; its width does not enter the kernel of its limit."""

    def conv(inputs):
        return [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.ReLU()]

    if readout == "flatten":
        layers = [*conv(3), *conv(width), *conv(width), *conv(width), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(width * pixels**2, 1, bias=False)).double()
    layers = [*conv(3), *conv(width), nn.AvgPool2d(2), *conv(width), nn.AvgPool2d(2), *conv(width)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1, bias=False)).double()


def best_ridge(K, labels):
    """Of the kernel matrix of the training images: fitted to four fifths, tried on the rest."""
    fitted = len(K) * 4 // 5
    scale = float(K.diagonal().mean())
    scores = []
    for ridge in RIDGES:
        weights = ridge_weights(K[:fitted, :fitted], indicators(labels[:fitted]), ridge * scale)
        scores.append((accuracy(K[fitted:, :fitted] @ weights, labels[fitted:]), ridge * scale))
    return max(scores)[1]


def strip_of(kernel, pair, rows):
    """Some rows of both kernel matrices; up to their diagonal where the second of the pair is `None`.

    One pass gives both: what the tangent kernel needs holds the covariance.
    """
    X, Y = pair
    if Y is not None:
        return torch.stack(kernel.both(X[rows], Y))
    itself = torch.stack(kernel.both(X[rows]))
    before = torch.stack(kernel.both(X[rows], X[: rows.start])) if rows.start else itself[:, :, :0]
    return torch.cat([before, itself], dim=2)


def matrices(kernel, pair, name, options, until=math.inf):
    """Both kernel matrices, strip by strip, and their seconds; `None` as the second of the pair mirrors the lower half.

    Of test images those rows that were begun before `until`.
    """
    X, Y = pair
    shape, seconds = (2, len(X), len(X if Y is None else Y)), 0.0
    found = torch.zeros(shape, dtype=X.dtype, device=X.device)
    for start in range(0, len(X), options.strip):
        rows = slice(start, start + options.strip)
        if start and time.perf_counter() > until:
            return found[:, :start], seconds
        file = options.store and options.store / f"{name}-{options.strip}-{start}.pt"
        if file and file.exists():
            part, taken = torch.load(file)
        else:
            begun = time.perf_counter()
            part = strip_of(kernel, pair, rows)
            if options.device == "cuda":
                torch.cuda.synchronize()
            taken = time.perf_counter() - begun
            if file:
                torch.save((part.cpu(), taken), file.with_suffix(".part"))
                file.with_suffix(".part").replace(file)
        found[:, rows, : part.shape[2]] = part.to(found)
        seconds += taken
        print(f"{name}: {min(rows.stop, len(X))} of {len(X)} rows, {seconds:.1f} s", flush=True)
    return (found if Y is not None else found.tril() + found.tril(-1).mT), seconds


def regression(samples, parts, options):
    """Time of the kernels, and accuracy on the test images, with as many training images as asked."""
    until = time.perf_counter() + options.seconds
    images, labels, tests, test_labels = (part.to(options.device) for part in parts)
    X, T = images[:samples].double(), tests[: options.test].double()
    mean, deviation = X.mean(dim=(0, 2, 3), keepdim=True), X.std(dim=(0, 2, 3), keepdim=True)
    X, T = (X - mean) / deviation, (T - mean) / deviation
    X, T = (nn.functional.adaptive_avg_pool2d(part, options.pixels or part.shape[-1]) for part in (X, T))
    name = f"{options.readout}-{options.dtype}-{samples}-{len(T)}-{X.shape[-1]}"
    model = myrtle(pixels=X.shape[-1], readout=options.readout).to(options.device)
    dtype = getattr(torch, options.dtype)
    kernel = infinite_width(model, X[:1], variance="he", parameterisation="ntk", dtype=dtype)
    K, first = matrices(kernel, (X, None), f"{name}-train", options)
    across, second = matrices(kernel, (T, X), f"{name}-test", options, until)
    row = {"samples": samples, "test": across.shape[1], "pixels": X.shape[-1], "readout": options.readout}
    row |= {"dtype": options.dtype, "train_s": first, "test_s": second}
    for place, quantity in enumerate(("nngp", "ntk")):
        weights = ridge_weights(K[place], indicators(labels[:samples]), best_ridge(K[place], labels[:samples]))
        row[f"{quantity}_accuracy"] = accuracy(across[place] @ weights, test_labels[: across.shape[1]])
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="files of kernel_regression.py --save-data")
    parser.add_argument("--samples", type=int, nargs="+", default=[1000, 5000], help="training images")
    parser.add_argument("--test", type=int, default=1000, help="test images")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64", help="of the kernels")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no test images later")
    parser.add_argument("--pixels", type=int, help="average the images to so many pixels a side")
    parser.add_argument("--readout", choices=("pooling", "flatten"), default="pooling")
    parser.add_argument("--strip", type=int, default=100, help="rows that are computed, and stored, together")
    parser.add_argument("--store", type=Path, help="folder of strips, from which a killed run goes on")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.store:
        options.store.mkdir(parents=True, exist_ok=True)
    ((_, parts),) = loaded(options.data).items()
    device, rows = torch.cuda.get_device_name() if options.device == "cuda" else None, []
    for samples in options.samples:
        rows.append(regression(samples, parts, options))
        if options.json:  # after each number of images, so that a killed run leaves what it has
            record = {"environment": environment(), "device": device, "rows": rows}
            options.json.write_text(json.dumps(record, indent=1) + "\n")
    show(rows)


if __name__ == "__main__":
    main()
