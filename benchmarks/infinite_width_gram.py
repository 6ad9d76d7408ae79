"""How much more than one matrix product does an infinite-width Gram matrix cost, at any depth?

Tangent kernel of inputs with 784 features, residual networks with two matrices per branch, all layers trained,
α = 1/√L. The table behind a kernel is made once, by a first call with a few inputs; neural-tangents' compilation is not
counted either. The diagonal is left out of the comparison: neural-tangents takes the angle of an input with itself from
a rounded cosine and loses half of the digits there. In float64 the product of the inputs is the floor that is left to
pay, so nothing is asked there against neural-tangents; its time is shown.
"""

import numpy as np
import torch
from measuring import environment as environment  # learning_rate_grid and depth_during_training take them from here
from measuring import show as show
from rows import Floor, Row, Target, deviation
from ways import Way

from skiplens.kernels.architectures import ResNetKernel

FEATURES = 784
ITEM = {"float32": 4, "float64": 8}


def gaussian_inputs(samples, features=FEATURES, dtype="float32"):
    """Independent normal numbers, the same in every environment."""
    return torch.from_numpy(np.random.default_rng(0).normal(size=(samples, features)).astype(dtype))


def tangent_kernel(samples, depth, dtype="float32"):
    kernel, X = ResNetKernel(depth, 2, depth**-0.5, trained="all"), gaussian_inputs(samples, dtype=dtype)
    return lambda: kernel.ntk(X)


def product(samples, dtype="float32"):
    """X Xᵀ alone."""
    X = gaussian_inputs(samples, dtype=dtype)
    return lambda: X @ X.T


def symmetric_floor(samples, dtype="float32", features=FEATURES):
    """One half of X Xᵀ, and the result written once."""
    return Floor(samples**2 * features, ITEM[dtype] * samples**2, dtype)


def off_diagonal(ours, theirs):
    """Largest deviation of two different inputs."""
    mask = ~np.eye(len(ours), dtype=bool)
    return deviation(ours[mask], theirs[mask])


def _row(depth, dtype):
    few = {"samples": 100}
    ours = Way("infinite_width_gram", "tangent_kernel", {"depth": depth, "dtype": dtype}, warm=few, repeats=7)
    alone = Way("infinite_width_gram", "product", {"dtype": dtype}, warm=few, repeats=7, same=False)
    peers = {"X Xᵀ alone": alone}
    targets = [Target("≤ 2.5 × the product alone", "X Xᵀ alone", least=1 / 2.5)]
    targets.append(Target("memory ≤ 3 × the result", of="result", most=3))
    if depth <= 100:
        arguments = {"depth": depth, "dtype": dtype}
        theirs = Way("neural_tangents_ways", "gram", arguments, untimed=1, repeats=3, environment="neural_tangents")
        peers["neural-tangents"] = theirs
        if dtype == "float32":
            words = f"≥ {depth} × less CPU time than neural-tangents"
            targets.append(Target(words, "neural-tangents", least=depth))
    else:
        shallow = Way(
            "infinite_width_gram", "tangent_kernel", {"depth": 10, "dtype": dtype}, warm=few, repeats=7, same=False
        )
        peers["Skiplens, 10 blocks"] = shallow
        targets.append(Target("≤ 1.2 × the cost at 10 blocks", "Skiplens, 10 blocks", least=1 / 1.2))
    return Row(
        f"gram-{depth}-{dtype}",
        f"ResNet tangent kernel, L = {depth:,}, {dtype}",
        ours,
        (500, 1000, 2000),
        (20, 40, 80),
        peers,
        floor=lambda samples: symmetric_floor(samples, dtype),
        result_bytes=lambda samples: ITEM[dtype] * samples**2,
        targets=tuple(targets),
        tolerance={"float32": 1e-5, "float64": 1e-10}[dtype],
        compare=off_diagonal,
        held_back="the kernel costs about as much as the product of its inputs, and that is what is left to pay",
    )


ROWS = [_row(depth, dtype) for dtype in ("float32", "float64") for depth in (10, 100, 1000)]

if __name__ == "__main__":
    from run import run_script

    run_script(__file__)
