"""The kernels of our own ResNet, DenseNet and plain network, and closed forms of nonlinearities."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skiplens.base.errors import InvalidInputError
from skiplens.kernels import DenseNetKernel, ModuleKernel, ResNetKernel, VanillaKernel, infinite_width
from skiplens.kernels.limit.gaussian import expanded, hermite_rule, piecewise_linear, sinusoid

DEPTH, ALPHA = 4, 0.3
X = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randn(3, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def matrix(fan_in, gain, width=8):
    """A layer whose weights have the mean square gain/fan_in exactly."""
    layer = nn.Linear(fan_in, width, bias=False).double()
    nn.init.constant_(layer.weight, math.sqrt(gain / fan_in))
    return layer


def relu(x):
    return math.sqrt(2) * F.relu(x)


class Network(nn.Module):
    """Width 8 throughout; the widths do not matter in the parameterisation of the kernels."""

    def __init__(self, kind, trained):
        super().__init__()
        self.kind = kind
        self.first, self.last = matrix(7, 1.0), matrix(8, 1.0)
        shapes = {"resnet": [(8, ALPHA)] * (2 * DEPTH), "vanilla": [(8, 1.0)] * (DEPTH - 1)}
        shapes["densenet"] = [(8 * (layer + 1), 1.0) for layer in range(DEPTH)]
        self.layers = nn.ModuleList(matrix(*shape) for shape in shapes[kind])
        for layer in (self.first, self.last):
            layer.weight.requires_grad_(trained == "all")

    def forward(self, x):
        y = self.first(x)
        if self.kind == "resnet":
            for one, other in zip(self.layers[::2], self.layers[1::2], strict=True):
                y = y + other(relu(one(y)))
        elif self.kind == "vanilla":
            for layer in self.layers:
                y = layer(relu(y))
            y = relu(y)
        else:
            before = [y]
            for layer in self.layers:
                before.append(layer(relu(torch.cat(before, dim=1))))
            y = before[-1]
        return self.last(y)


KERNELS = {
    "resnet": lambda trained: ResNetKernel(DEPTH, 2, ALPHA, trained=trained),
    "densenet": lambda trained: DenseNetKernel(DEPTH, trained=trained),
}


@pytest.mark.parametrize("trained", ["branches", "all"])
@pytest.mark.parametrize("kind", KERNELS)
def test_the_kernels_of_our_architectures(kind, trained):
    kernel, wanted = infinite_width(Network(kind, trained), X, parameterisation="ntk"), KERNELS[kind](trained)
    for other in (None, Y):
        torch.testing.assert_close(kernel.nngp(X, other), wanted.nngp(X, other), rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(kernel.ntk(X, other), wanted.ntk(X, other), rtol=1e-11, atol=1e-11)


def test_the_kernel_of_a_plain_network():
    """Its L layers are all matrices but the last one."""
    model = Network("vanilla", "all")
    model.last.weight.requires_grad_(False)
    kernel, wanted = infinite_width(model, X, parameterisation="ntk"), VanillaKernel(DEPTH)
    torch.testing.assert_close(kernel.nngp(X, Y), wanted.nngp(X, Y), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(kernel.ntk(X, Y), wanted.ntk(X, Y), rtol=1e-11, atol=1e-11)


def test_the_polynomials_of_the_rule_are_orthonormal():
    points, weights, polynomials = hermite_rule()
    assert abs((polynomials.T * weights) @ polynomials - np.eye(192)).max() < 1e-12
    assert abs(weights @ np.exp(points) - math.exp(0.5)) < 1e-13


LEFT, RIGHT = torch.tensor([[0.3], [1.0], [4.0]]).double(), torch.tensor([[0.7, 2.5]]).double()
RHO = torch.tensor([[-0.9, 0.2], [0.0, 0.999], [1.0, -1.0]]).double()
K = RHO * (LEFT * RIGHT).sqrt()


def erf_pair(cross, left, right):
    return 2 / math.pi * torch.asin(2 * cross / ((1 + 2 * left) * (1 + 2 * right)).sqrt())


def erf_slopes(cross, left, right):
    return 4 / math.pi / ((1 + 2 * left) * (1 + 2 * right) - 4 * cross**2).sqrt()


CLOSED = {
    "sin": (torch.sin, lambda: (-(LEFT + RIGHT) / 2).exp() * K.sinh(), lambda: (-(LEFT + RIGHT) / 2).exp() * K.cosh()),
    "cos": (torch.cos, lambda: (-(LEFT + RIGHT) / 2).exp() * K.cosh(), lambda: (-(LEFT + RIGHT) / 2).exp() * K.sinh()),
    "exp": (torch.exp, lambda: ((LEFT + RIGHT) / 2 + K).exp(), lambda: ((LEFT + RIGHT) / 2 + K).exp()),
    "erf": (torch.erf, lambda: erf_pair(K, LEFT, RIGHT), lambda: erf_slopes(K, LEFT, RIGHT)),
    "cube": (lambda z: z**3, lambda: 9 * K * LEFT * RIGHT + 6 * K**3, lambda: 9 * (LEFT * RIGHT + 2 * K**2)),
}


@pytest.mark.parametrize("name", CLOSED)
def test_expansions_against_closed_forms(name):
    function, pair, slopes = CLOSED[name]
    found, error = expanded(RHO, LEFT, RIGHT, function)
    scale = float(pair().abs().max())
    torch.testing.assert_close(found.second[0], pair(), rtol=1e-9, atol=1e-11 * scale)
    torch.testing.assert_close(found.slopes, slopes(), rtol=1e-9, atol=1e-11 * float(slopes().abs().max()))
    assert error < 1e-10


def test_equal_variances_on_both_sides():
    same = LEFT.T.clone()
    rho = RHO @ RHO.T / 2
    found, _ = expanded(rho, LEFT, same, torch.erf)
    wanted = erf_pair(rho * (LEFT * same).sqrt(), LEFT, same)
    torch.testing.assert_close(found.second[0], wanted, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(found.second[1], erf_pair(LEFT, LEFT, LEFT), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(found.second[2], erf_pair(same, same, same), rtol=1e-9, atol=1e-11)
    mixed, _ = expanded(rho, LEFT, same, torch.erf, other=lambda z: z)
    torch.testing.assert_close(mixed.second[2], same, rtol=1e-9, atol=1e-11)
    slope = 2 / (math.pi * (1 + 2 * LEFT)).sqrt()  # E f′(u), with which Stein's lemma gives E f(u) v
    torch.testing.assert_close(mixed.second[0], slope * rho * (LEFT * same).sqrt(), rtol=1e-9, atol=1e-11)


def on_a_grid(function, rho, left, right):
    """E f(u) f(v) and E f′(u) f′(v) by the trapezoidal rule, which converges exponentially for smooth f."""
    grid = torch.linspace(-9, 9, 601).double()
    a, b = torch.meshgrid(grid, grid, indexing="ij")
    density = (grid[1] - grid[0]) ** 2 * torch.exp(-(a * a + b * b) / 2) / (2 * math.pi)
    u, v = left**0.5 * a, right**0.5 * (rho * a + (1 - rho**2) ** 0.5 * b)
    slopes = [torch.func.jvp(function, (z,), (torch.ones_like(z),))[1] for z in (u, v)]
    return (density * function(u) * function(v)).sum(), (density * slopes[0] * slopes[1]).sum()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize("function", [F.gelu, torch.tanh, torch.sigmoid, F.silu, F.softplus])
def test_expansions_against_integrals_over_the_plane(function):
    found, error = expanded(RHO, LEFT, RIGHT, function)
    for i in range(3):
        for j in range(2):
            pair, slopes = on_a_grid(function, RHO[i, j], LEFT[i], RIGHT[:, j])
            tolerance = 1e-9 + 4 * error  # the largest deviation is four here
            assert abs(found.second[0][i, j] - pair) < tolerance and abs(found.slopes[i, j] - slopes) < tolerance
    assert error < 1e-6


@pytest.mark.parametrize("phase", [0.0, 0.4, math.pi / 2])
@pytest.mark.parametrize("frequency", [0.3, 12.0])
def test_sines_against_integrals_over_the_plane(frequency, phase):
    def wave(z):
        return torch.sin(frequency * z + phase)

    found = sinusoid(RHO, LEFT, RIGHT, frequency, phase)
    grid = torch.linspace(-9, 9, 2401).double()
    for i in range(3):
        (own, _), density = on_a_grid(wave, torch.tensor(1.0), LEFT[i], LEFT[i]), torch.exp(-(grid**2) / 2)
        mean = (density * wave(LEFT[i] ** 0.5 * grid)).sum() / density.sum()
        assert abs(found.second[1][i, 0] - own) < 1e-12 and abs(found.mean[0][i, 0] - mean) < 1e-12
        for j in range(2):
            pair, slopes = on_a_grid(wave, RHO[i, j], LEFT[i], RIGHT[:, j])
            assert abs(found.second[0][i, j] - pair) < 1e-12
            assert abs(found.slopes[i, j] - slopes) < 1e-12 * frequency**2


class Siren(nn.Module):
    """As implicit representations of images have it: far more turns than any polynomial follows."""

    def __init__(self):
        super().__init__()
        self.first, self.hidden, self.last = nn.Linear(2, 64), nn.Linear(64, 64, bias=False), nn.Linear(64, 1)

    def forward(self, x):
        return self.last(torch.sin(30 * self.hidden(torch.cos(30 * self.first(x)))))


def test_a_network_of_sines_of_high_frequency():
    """By E sin a sin b = e^(−(A + B)/2) sinh C and E cos a cos b = e^(−(A + B)/2) cosh C, with the exponents joined."""
    X, spread = torch.rand(5, 2, generator=torch.Generator().manual_seed(0)).double() / 5, 0.37
    model, variances = Siren().double(), []
    with torch.no_grad():
        for part in (model.first.weight, model.first.bias, model.hidden.weight, model.last.weight, model.last.bias):
            part.copy_((torch.rand_like(part) - 0.5) * spread)
            variances.append(float(part.square().mean()) * (part.shape[1] if part.ndim == 2 else 1))

    def waves(C, sign):
        A, B = C.diagonal()[:, None], C.diagonal()[None]
        return ((C - (A + B) / 2).exp() + sign * (-C - (A + B) / 2).exp()) / 2

    inner = waves(900 * (variances[0] * (X @ X.T) / 2 + variances[1]), 1)
    wanted = variances[3] * waves(900 * variances[2] * inner, -1) + variances[4]
    found = infinite_width(model, X[:1]).nngp(X)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    assert found[0, 1:].max() < 0.9 * found[0, 0]  # it is no constant


@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_bends_in_closed_form_give_the_arc_cosine_kernels(slope):
    wanted = piecewise_linear(RHO, LEFT, RIGHT, slope)
    found, error = expanded(RHO, LEFT, RIGHT, lambda z: F.leaky_relu(z, slope))
    assert error < 1e-8
    for got, closed in zip(
        (*found.second, *found.mean, found.slopes), (*wanted.second, *wanted.mean, wanted.slopes), strict=True
    ):
        torch.testing.assert_close(got, closed, rtol=1e-11, atol=1e-12)


def step_at(z):
    return torch.where(z > 0.3, z + 1, -z)


# with where they jump or bend
BENT = {
    "hardtanh": (F.hardtanh, (-1.0, 1.0)),
    "hardswish": (F.hardswish, (-3.0, 3.0)),
    "hardshrink": (F.hardshrink, (-0.5, 0.5)),
    "selu": (F.selu, (0.0,)),
    "elu": (F.elu, (0.0,)),
    "sign": (torch.sign, (0.0,)),
    "step_at": (step_at, (0.3,)),
    "bent_twice": (lambda z: F.relu(1 - F.relu(z)), (0.0, 1.0)),
}


def between_bends(function, places, rho, left, right):
    """E f(u) f(v) and E f′(u) f′(v) by Gauss's rule on all rectangles where f is smooth."""
    points, weights = np.polynomial.legendre.leggauss(80)
    nodes, sizes = [], []
    for variance in (left, right):
        edges = [-9 * variance**0.5, *places, 9 * variance**0.5]
        pairs = [(a, b) for a, b in itertools.pairwise(edges) if b > a]
        nodes.append(torch.from_numpy(np.concatenate([(a + b) / 2 + (b - a) / 2 * points for a, b in pairs])))
        sizes.append(torch.from_numpy(np.concatenate([(b - a) / 2 * weights for a, b in pairs])))
    u, v = torch.meshgrid(*nodes, indexing="ij")
    form = u * u / left - 2 * rho * u * v / (left * right) ** 0.5 + v * v / right
    density = torch.exp(-form / (2 * (1 - rho**2))) / (2 * math.pi * (left * right * (1 - rho**2)) ** 0.5)
    slopes = [
        torch.autograd.grad(function(z.requires_grad_()).sum(), z)[0] for z in (nodes[0].clone(), nodes[1].clone())
    ]
    values = [function(z).detach() for z in nodes]
    return tuple(float((sizes[0] * f) @ density @ (sizes[1] * g)) for f, g in (values, slopes))


@pytest.mark.parametrize("name", BENT)
def test_jumps_and_bends_against_integrals_between_them(name):
    function, places = BENT[name]
    rho = torch.tensor([[-0.9, 0.2], [0.0, 0.95], [0.5, -0.3]]).double()
    found, error = expanded(rho, LEFT, RIGHT, function)
    assert error < 1e-3
    peak = (found.second[1] * found.second[2]).sqrt()
    for i in range(3):
        for j in range(2):
            pair, slopes = between_bends(function, places, float(rho[i, j]), float(LEFT[i]), float(RIGHT[:, j]))
            assert abs(found.second[0][i, j] - pair) < 1e-8 + error * peak[i, j]
            assert abs(found.slopes[i, j] - slopes) < 1e-8 + 2 * error


def test_sign_at_equal_and_opposite_inputs():
    wanted = 2 / math.pi * torch.asin(RHO)
    torch.testing.assert_close(expanded(RHO, LEFT, RIGHT, torch.sign)[0].second[0], wanted, rtol=1e-12, atol=1e-12)


def test_a_function_that_is_too_sharp_is_refused():
    model = nn.Sequential(nn.Linear(7, 8), Steep(), nn.Linear(8, 1)).double()
    with pytest.raises(
        InvalidInputError,
        match=r"aten.linear in module '2' has no .* here: the nonlinearity before it bends too sharply: about \d+ %",
    ):
        infinite_width(model, X)


class Steep(nn.Module):
    def forward(self, x):
        return torch.tanh(50 * x)


@pytest.mark.parametrize("kind", KERNELS)
def test_many_inputs_in_float32_are_looked_up_in_a_table_of_the_angle(kind, monkeypatch):
    kernel = infinite_width(Network(kind, "all").float(), X.float(), parameterisation="ntk")
    many = torch.randn(520, 7, generator=torch.Generator().manual_seed(2)).float()
    many[1] = many[0]
    many[2] = many[0] * (1 + 1e-6)
    wanted = [kernel.matrix(quantity, many.double()) for quantity in ("nngp", "ntk")]
    monkeypatch.setattr(ModuleKernel, "_tile", lambda *_: pytest.fail("not by the table"))
    for quantity, matrix in zip(("nngp", "ntk"), wanted, strict=True):
        found = kernel.matrix(quantity, many)
        assert found.dtype == torch.float32 and torch.equal(found, found.T)
        scale = matrix.diagonal().sqrt()
        assert ((found - matrix).abs() / scale[:, None] / scale).max() < 3e-6


def test_only_kernels_of_the_angle_are_tabulated():
    def layers(middle, bias=False):
        return nn.Sequential(nn.Linear(7, 8, bias=bias), middle, nn.Linear(8, 2, bias=False)).float()

    homogeneous, others = [layers(nn.ReLU()), layers(nn.LeakyReLU(0.2))], [layers(nn.Tanh()), layers(nn.ReLU(), True)]
    others += [layers(nn.LayerNorm(8, elementwise_affine=False))]
    for dtype in (torch.float32, torch.float64):  # tests compute in float64 by default, users do not
        torch.set_default_dtype(dtype)
        assert all(infinite_width(model, X.float())._tables is not None for model in homogeneous)
    assert all(infinite_width(model, X.float())._tables is None for model in others)
