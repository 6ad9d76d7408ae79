"""How much faster is the depth-free DenseNet tangent kernel than walking its layers in torch?

Two direct recursions are timed: ours (stable, float64 inside, in tiles) and the shortest one that can be written, on
whole float32 matrices with arccos. The short one loses digits near equal inputs, hence the tolerance of 1e-3.
"""

import math

import torch
from infinite_width_gram import gaussian_inputs, symmetric_floor
from rows import Row, Target
from ways import Way

from skiplens.kernels.architectures import DenseNetKernel


def depth_free(samples, depth=100):
    kernel, X = DenseNetKernel(depth), gaussian_inputs(samples)
    return lambda: kernel.ntk(X)


def stable_recursion(samples, depth=100):
    kernel, X = DenseNetKernel(depth, evaluation="recursion"), gaussian_inputs(samples)
    return lambda: kernel.ntk(X)


def naive_recursion(samples, depth=100):
    """Λ and T of every layer for all pairs at once."""
    X = gaussian_inputs(samples)

    def walk():
        lengths = X.norm(dim=1) / math.sqrt(X.shape[1])
        Lambda = torch.nn.functional.normalize(X) @ torch.nn.functional.normalize(X).T
        T = torch.zeros_like(Lambda)
        for layer in range(depth):
            angle = torch.acos(Lambda.clamp(-1, 1))
            k0 = 1 - angle / math.pi
            k1 = (torch.sin(angle) + (math.pi - angle) * Lambda) / math.pi
            T = T + (k1 - (1 - k0) * T) / (layer + 1)
            Lambda = Lambda + (k1 - Lambda) / (layer + 1)
        return T * torch.outer(lengths, lengths)

    return walk


ROWS = [
    Row(
        "densenet-gram",
        "DenseNet tangent kernel, L = 100, float32",
        Way("densenet_gram", "depth_free", warm={"samples": 100}, repeats=7),
        (500, 1000, 2000),
        (20, 40, 80),
        {
            "recursion over layers, torch": Way("densenet_gram", "naive_recursion", warm={"samples": 10}, repeats=1),
            "recursion over layers, stable": Way("densenet_gram", "stable_recursion", warm={"samples": 10}, repeats=1),
        },
        floor=symmetric_floor,
        targets=(Target("≥ 50 × the direct recursion", "recursion over layers, torch", least=50),),
        tolerance=1e-3,
    )
]

if __name__ == "__main__":
    from run import run_script

    run_script(__file__)
