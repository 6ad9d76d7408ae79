"""Wide finite networks have the kernels of their limit, within four standard errors."""

import pytest
import torch

from skiplens.kernels.architectures import DenseNetKernel, ResNetKernel, VanillaKernel
from tests.kernels import finite_networks
from tests.tolerances import STANDARD_ERRORS

WIDTH, DRAWS, FEATURES = 200, 40, 3

CASES = [
    (ResNetKernel(2, 2, 0.5), lambda g: finite_networks.resnet(g, FEATURES, WIDTH, 2, 2, 0.5)),
    (ResNetKernel(3, 3, 0.7), lambda g: finite_networks.resnet(g, FEATURES, WIDTH, 3, 3, 0.7)),
    (DenseNetKernel(3), lambda g: finite_networks.densenet(g, FEATURES, WIDTH, 3)),
    (VanillaKernel(3), lambda g: finite_networks.vanilla(g, FEATURES, WIDTH, 3)),
]


@pytest.mark.parametrize(("kernel", "draw"), CASES, ids=["resnet2", "resnet3", "densenet", "vanilla"])
def test_mean_of_finite_kernels(kernel, draw, generator):
    X = torch.tensor([[1.0, 0.5, -0.2], [0.8, 0.7, 0.1], [-0.5, 1.0, 2.0]])
    drawn = [finite_networks.tangent_kernel(*draw(generator), X) for _ in range(DRAWS)]
    tangent = torch.stack([K for K, _ in drawn])
    products = torch.stack([torch.outer(f, f) for _, f in drawn])
    # off the diagonal a finite width is biased by at most 0.5/width of the largest entry (theory note, §2.5)
    bias = 0.5 / WIDTH * kernel.ntk(X).max()
    assert ((tangent.mean(0) - kernel.ntk(X)).abs() < STANDARD_ERRORS * error_of_mean(tangent) + bias).all()
    assert ((products.mean(0) - kernel.nngp(X)).abs() < STANDARD_ERRORS * error_of_mean(products) + bias).all()


def error_of_mean(samples):
    return samples.std(dim=0) / len(samples) ** 0.5


def test_the_comparison_rejects_the_formula_as_printed(generator):
    """§6 of the theory note: with Σ^{l−1,m} instead of Σ^{l−1,m−1} the kernel of orthogonal inputs is 1.9035."""
    X = torch.eye(2) * 2**0.5
    drawn = torch.stack(
        [
            finite_networks.tangent_kernel(*finite_networks.resnet(generator, 2, WIDTH, 5, 2, 0.5), X)[0][0, 1]
            for _ in range(DRAWS)
        ]
    )
    error = drawn.std() / DRAWS**0.5
    assert abs(drawn.mean() - ResNetKernel(5, 2, 0.5).ntk(X)[0, 1]) < STANDARD_ERRORS * error + 0.5 / WIDTH * 6.1
    assert abs(drawn.mean() - 1.9035) > STANDARD_ERRORS * error
