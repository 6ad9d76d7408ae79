"""Every pointwise function: the mean over the coordinates of one wide layer, which are Gaussian at any width."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skiplens.kernels import infinite_width
from skiplens.kernels.limit.rules import _POINTWISE
from tests.kernels.limit.cases import BIAS, FEATURES, WEIGHT, typical
from tests.kernels.limit.test_monte_carlo import INPUTS

FUNCTIONS = {
    **{name: getattr(F, name) for name in "relu leaky_relu gelu silu softplus elu celu selu mish hardtanh".split()},
    **{name: getattr(F, name) for name in "hardsigmoid hardswish hardshrink softshrink relu6 softsign".split()},
    **{name: getattr(torch, name) for name in "abs erf tanh sigmoid sin cos exp sign square expm1 atan asinh".split()},
    **{name: getattr(torch, name) for name in "sinh cosh".split()},
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
    "log_sigmoid": F.logsigmoid,
    "threshold": lambda z: F.threshold(z, 0.5, -1.0),
    "clamp": lambda z: z.clamp(-0.5, 1),
    "clamp_min": lambda z: z.clamp_min(-0.5),
    "clamp_max": lambda z: z.clamp_max(0.5),
    "prelu": lambda z: F.prelu(z, torch.tensor([0.3], dtype=z.dtype)),
    "pow": lambda z: z**3,
    "sqrt": lambda z: (1 + z * z).sqrt(),
    "rsqrt": lambda z: (1 + z * z).rsqrt(),
    "reciprocal": lambda z: (2 + torch.sin(z)).reciprocal(),
    "log1p": lambda z: torch.log1p(z * z),
}
DRAWN = {"hardsigmoid": lambda z: (z + 3).clamp(0, 6) / 6}  # torch's own backward pass takes 1/6 in float32
WIDTH = 40_000


class Layer(nn.Module):
    def __init__(self, function, width):
        super().__init__()
        self.first, self.last, self.function = nn.Linear(FEATURES, width), nn.Linear(width, 1), function

    def forward(self, x):
        return self.last(self.function(self.first(x)))


def test_every_function_that_has_a_rule_is_here():
    assert set(_POINTWISE.split()) <= set(FUNCTIONS)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_wide_layer(name):
    model, X = typical(Layer(FUNCTIONS[name], 8).double()), 0.6 * INPUTS
    model.last.requires_grad_(False)
    kernel = infinite_width(model, X, parameterisation="ntk")
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(FEATURES, WIDTH, generator=generator, dtype=torch.float64) * WEIGHT / FEATURES**0.5
    z = (X @ weights + BIAS * torch.randn(WIDTH, generator=generator, dtype=torch.float64)).requires_grad_()
    values = DRAWN.get(name, FUNCTIONS[name])(z)
    (slopes,) = torch.autograd.grad(values.sum(), z)
    inside = WEIGHT**2 * X @ X.T / FEATURES + BIAS**2  # the kernel before the function, and its tangent kernel
    products = [part[:, None] * part[None] for part in (values.detach(), slopes)]
    found = [products[0] * WEIGHT**2 + BIAS**2, products[1] * WEIGHT**2 * inside[..., None]]
    for draws, wanted in zip(found, (kernel.nngp(X), kernel.ntk(X)), strict=True):
        error = draws.std(dim=2) / WIDTH**0.5
        assert ((draws.mean(dim=2) - wanted).abs() <= 4 * error + 1e-12).all(), (draws.mean(dim=2) - wanted) / error
