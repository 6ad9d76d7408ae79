"""The matrix-free sampler against exact moments, against networks with weights and against infinite width."""

import pytest
import torch
from scipy.stats import ks_2samp

from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.kernels.finite_width.matrix_free import sample_jacobian_norms, sample_kernels
from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet, ResNet, Vanilla
from skiplens.kernels.finite_width.reduced_moments import reduced_moments
from skiplens.kernels.finite_width.simulation import Simulation, estimate
from tests.tolerances import STANDARD_ERRORS, assert_close

ONE_IN_16000 = 6e-5  # the p-value that belongs to four standard errors

CASES = [
    (ResNet(3, 24, 1, 0.5), 10_000),
    (ResNet(3, 24, 2, 0.5), 10_000),
    (ResNet(3, 40, 3, 0.7), 6_000),
    (ResNet(8, 24, 2, 0.3), 6_000),
    (DenseNet(2, 24), 10_000),
    (DenseNet(4, 24), 10_000),
    (DenseNet(6, 24), 6_000),
    (DenseNet(10, 24), 4_000),
    (Vanilla(3, 40), 6_000),
    (Vanilla(10, 100), 1_500),
]

NARROW = [ResNet(3, 8, 1, 0.5), ResNet(3, 8, 2, 0.5), ResNet(3, 16, 3, 0.7), ResNet(8, 16, 2, 0.3)]
NARROW += [DenseNet(2, 6), DenseNet(4, 8), DenseNet(6, 10), DenseNet(10, 20), Vanilla(3, 8)]


@pytest.mark.parametrize("trained", ["branches", "branches_and_first", "branches_and_last", "all"])
@pytest.mark.parametrize(("network", "networks"), CASES, ids=str)
def test_mean_and_variance_are_the_exact_ones(network, networks, trained, generator):
    drawn = sample_kernels(network, torch.ones(1, 3), networks, generator, trained)
    exact = kernel_moments(network, trained)
    assert drawn.mean.deviation(exact.mean).abs() < STANDARD_ERRORS
    assert drawn.second_moment.deviation(exact.second_moment).abs() < STANDARD_ERRORS


SHAPES = {
    "resnet, m=1": lambda n: ResNet(2, n, 1, 0.9),
    "resnet, m=2": lambda n: ResNet(2, n, 2, 0.9),
    "resnet, m=3": lambda n: ResNet(2, n, 3, 0.9),
    "densenet": lambda n: DenseNet(3, n),
    "vanilla": lambda n: Vanilla(3, n),
}


@pytest.mark.parametrize("equal_inputs", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_mean_of_the_narrowest_networks(shape, equal_inputs, generator):
    """With two units per input every direction counts: noise that is forgotten or drawn twice shows in the mean.

    Equal inputs make all Gram matrices singular.
    """
    network = SHAPES[shape](2 * equal_inputs)
    drawn = sample_kernels(network, torch.ones(equal_inputs, 3), 40_000, generator, "all")
    assert drawn.mean.deviation(kernel_moments(network, "all").mean).abs().max() < STANDARD_ERRORS


@pytest.mark.slow
@pytest.mark.parametrize("network", NARROW, ids=str)
def test_mean_and_variance_of_narrow_networks(network, generator):
    """Their kernels are heavy tailed: the standard error of 𝒢² needs very many of them."""
    drawn = sample_kernels(network, torch.ones(1, 3), 200_000, generator)
    exact = kernel_moments(network)
    assert drawn.mean.deviation(exact.mean).abs() < STANDARD_ERRORS
    assert drawn.second_moment.deviation(exact.second_moment).abs() < STANDARD_ERRORS


def angles(*radians):
    t = torch.tensor(radians)
    return 2**0.5 * torch.stack([t.cos(), t.sin()], dim=1)


INPUTS = {
    "on a circle, fewer features than inputs": angles(0.0, 0.4, 1.3, 3.0),
    "equal and opposite": angles(0.3, 0.3, 0.3 + torch.pi, 1.0),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize(
    "network",
    [ResNet(2, 8, 1, 0.9), ResNet(3, 8, 2, 0.5), ResNet(2, 9, 3, 0.9), DenseNet(4, 8), Vanilla(3, 8)],
    ids=str,
)
def test_same_law_as_with_explicit_weights(network, inputs, dtype, generator):
    """Kolmogorov-Smirnov on every entry, on a quadratic form of all of them and on a product of two.

    Eight units for four inputs are the narrowest that the sampler takes.
    """
    x = INPUTS[inputs].double()
    free = sample_kernels(network, x.to(dtype), 3000, generator, "all").samples.double()
    explicit = Simulation(network, trained="all").kernels(x, 3000, generator).samples
    signs = torch.tensor([1.0, -2.0, 1.5, 0.7], dtype=torch.float64)
    for look in (
        *(lambda K, i=i, j=j: K[:, i, j] for i in range(4) for j in range(i + 1)),
        lambda K: torch.einsum("nij,i,j->n", K, signs, signs),
        lambda K: K[:, 0, 0] * K[:, 3, 3] - K[:, 0, 3] ** 2,
    ):
        assert ks_2samp(look(free), look(explicit)).pvalue > ONE_IN_16000


INFINITE = [
    (ResNet(5, 400, 2, 0.5), [4.87604204896828, 2.72235426059475, 1.16213138752003, 0.244998034854265], 6.103515625),
    (ResNet(3, 400, 3, 0.7), [4.15191661653346, 2.35678105446135, 1.30237955261403, 0.742825602346812], 5.567864463),
    (DenseNet(5, 400), [1.87524351759790, 1.22143809876669, 0.784648713741555, 0.533899432396320], 2.28333333333333),
    (Vanilla(3, 400), [2.06084229195635, 0.999716486914309, 0.455562386689638, 0.213969934841343], 3.0),
]


@pytest.mark.parametrize(("network", "expected", "diagonal"), INFINITE, ids=lambda v: str(v)[:30])
def test_off_the_diagonal_the_mean_is_the_infinite_width_kernel(network, expected, diagonal, generator):
    """At correlations .9, .5, 0 and -.5, up to a bias of at most half the diagonal over the width."""
    rho = torch.tensor([1.0, 0.9, 0.5, 0.0, -0.5])
    inputs = 2**0.5 * torch.stack([rho, (1 - rho.square()).sqrt()], dim=1)
    mean = sample_kernels(network, inputs, 300, generator).mean
    gap = (mean.value[0, 1:] - torch.tensor(expected)).abs()
    assert (gap <= STANDARD_ERRORS * mean.standard_error[0, 1:] + 0.5 * diagonal / 400).all()


@pytest.mark.parametrize(
    "depth", [5, 10, 20, pytest.param(40, marks=pytest.mark.slow), pytest.param(80, marks=pytest.mark.slow)]
)
def test_figure_5(depth, generator):
    """200 networks of width ten times the depth: the variance is the exact one up to what 200 draws allow."""
    n = 10 * depth
    for network, lowest, highest in (
        (ResNet(depth, n, 2, 0.3 / depth**0.5), 0.65, 1.55),
        (DenseNet(depth, n), 0.6, 1.6),
        (Vanilla(depth, n), 0.45, 2.3),
    ):
        drawn = sample_kernels(network, torch.ones(1, 2), 200, generator)
        assert lowest < float(drawn.variance.value) / kernel_moments(network).variance < highest


@pytest.mark.parametrize(
    "network", [ResNet(5, 50, 2, 0.3), ResNet(3, 40, 3, 0.5), DenseNet(4, 40), Vanilla(3, 40)], ids=str
)
def test_jacobian_norms(network, generator):
    found = sample_jacobian_norms(network, 5_000, generator)
    per_layer = network.branch_depth if isinstance(network, ResNet) else 1
    assert found.shape == (5_000, network.depth * per_layer)
    for k in range(found.shape[1]):
        layer = k // per_layer + 1
        exact = reduced_moments(network, layer)
        assert estimate(found[:, k]).deviation(exact.second).abs() < STANDARD_ERRORS
        assert estimate(found[:, k].square()).deviation(exact.jacobian_fourth).abs() < STANDARD_ERRORS
    assert estimate(found.sum(1)).deviation(kernel_moments(network).mean).abs() < STANDARD_ERRORS


@pytest.mark.parametrize("network", [ResNet(3, 40, 2, 0.5), DenseNet(3, 40), Vanilla(3, 40)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_kernel_is_symmetric_positive_and_homogeneous(network, dtype, seed):
    inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed)).to(dtype)
    scales = torch.tensor([1.0, 2.0, 0.5, 8.0, 2.0**-10], dtype=dtype)  # powers of two: the unit inputs stay the same
    plain, scaled = (
        sample_kernels(network, x, 20, torch.Generator().manual_seed(seed), "all").samples
        for x in (inputs, inputs * scales[:, None])
    )
    assert plain.dtype == dtype
    assert_close(plain, plain.mT)
    smallest, largest = torch.linalg.eigvalsh(plain.double()).aminmax()
    assert smallest > -torch.finfo(dtype).eps * 100 * largest
    assert_close(scaled, plain * scales[:, None] * scales)


@pytest.mark.parametrize("network", [ResNet(3, 40, 2, 0.5), DenseNet(3, 40), Vanilla(3, 40)], ids=str)
def test_a_zero_input_has_a_zero_kernel(network, generator):
    kernels = sample_kernels(network, torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]), 5, generator, "all").samples
    assert not kernels[:, 1].any() and not kernels[:, :, 1].any()
    assert kernels.isfinite().all() and (kernels[:, [0, 2], [0, 2]] > 0).all()


def test_dead_layers_give_zero_and_no_error(generator):
    """With two units all gates of a layer are closed in a quarter of the networks."""
    drawn = sample_kernels(Vanilla(3, 2), torch.ones(1, 2), 4000, generator)
    assert drawn.samples.isfinite().all()
    assert (drawn.samples.abs() < 1e-20).double().mean() > 0.4
    assert drawn.mean.deviation(3.0).abs() < STANDARD_ERRORS


def test_memory_decides_the_chunks(generator):
    network = ResNet(3, 8, 2, 0.5)
    drawn = sample_kernels(network, torch.ones(1, 2), 3000, generator, memory=60_000)
    assert drawn.samples.shape == (3000, 1, 1)
    assert drawn.mean.deviation(kernel_moments(network).mean).abs() < STANDARD_ERRORS


def test_same_seed_same_kernels():
    left, right = (
        sample_kernels(DenseNet(3, 9), torch.eye(3), 4, torch.Generator().manual_seed(5)).samples for _ in range(2)
    )
    assert torch.equal(left, right)


def test_bad_requests(generator):
    with pytest.raises(InvalidInputError, match=r"at least twice the number of inputs, got 5 units for 3 .*Simulation"):
        sample_kernels(Vanilla(3, 5), torch.eye(3), 4, generator)
    with pytest.raises(TooLargeError, match=r"One network of this sample needs .*Use fewer inputs or float32"):
        sample_kernels(Vanilla(3, 50), torch.eye(3), 4, generator, memory=1000)
    with pytest.raises(InvalidInputError, match=r"trained='none' is not known"):
        sample_kernels(Vanilla(3, 50), torch.eye(3), 4, generator, "none")


@pytest.mark.gpu
@pytest.mark.parametrize("network", [ResNet(3, 24, 2, 0.5), DenseNet(4, 24), Vanilla(3, 40)], ids=str)
def test_on_a_gpu(network, seed):
    generator, inputs = torch.Generator("cuda").manual_seed(seed), torch.ones(2, 3, device="cuda")
    for drawn in (
        sample_kernels(network, inputs, 10_000, generator, "all"),
        Simulation(network, trained="all").kernels(inputs, 10_000, generator),
    ):
        assert drawn.samples.is_cuda
        exact = kernel_moments(network, "all")
        assert drawn.mean.deviation(exact.mean).abs().max() < STANDARD_ERRORS
        assert drawn.second_moment.deviation(exact.second_moment).abs().max() < STANDARD_ERRORS
