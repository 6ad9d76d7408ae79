"""What does the infinite-width kernel of a convolutional module cost per entry?

Tangent kernel of images of 32 × 32 pixels: convolutions of 3 × 3 with zero padding and ReLU, then global pooling, so
that all 1024² pairs of pixels are carried. Both compute in float64; neural-tangents' compilation is not counted.
Skiplens computes one half of the matrix and mirrors it.
"""

import numpy as np
import torch
from infinite_width_gram import off_diagonal
from rows import Row, Target
from torch import nn
from ways import Way

from skiplens.kernels import infinite_width


def images(samples):
    """Independent normal numbers, (samples, channels, 32, 32), the same in every environment."""
    return torch.from_numpy(np.random.default_rng(0).normal(size=(samples, 32, 32, 3))).movedim(-1, 1).contiguous()


def tangent_kernel(samples, depth):
    layers = []
    for number in range(depth):
        layers += [nn.Conv2d(3 if number == 0 else 8, 8, 3, padding=1, bias=False), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1, bias=False)).double()
    X = images(samples)
    kernel = infinite_width(model, X[:1], variance="he", parameterisation="ntk")
    return lambda: kernel.ntk(X)


def _row(depth, sizes):
    theirs = Way(
        "neural_tangents_ways", "convolutional", {"depth": depth}, untimed=1, repeats=1, environment="neural_tangents"
    )
    return Row(
        f"module-gram-{depth}",
        f"Tangent kernel of a CNN with global pooling, {depth} layers, 32 × 32 images",
        Way("module_kernel_gram", "tangent_kernel", {"depth": depth}, warm={"samples": 1}, repeats=1),
        sizes,
        (1, 2, 3),
        {"neural-tangents": theirs},
        targets=(Target("≥ 2 × less CPU time than neural-tangents", "neural-tangents", least=2),),
        tolerance=1e-6,
        compare=off_diagonal,
    )


ROWS = [_row(3, (2, 4, 8)), _row(10, (2, 3, 5))]

if __name__ == "__main__":
    from run import run_script

    run_script(__file__)
