"""Networks with explicit weights against the exact moments, theorem 3 and theorem 4 with other laws."""

import pytest
import torch

from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet, ResNet, Vanilla, weight_law
from skiplens.kernels.finite_width.reduced_moments import reduced_moments
from skiplens.kernels.finite_width.simulation import Simulation, estimate
from tests.tolerances import STANDARD_ERRORS, assert_close

ONE_INPUT = [[1.0, 1.0, 1.0]]  # norm² 3 in three dimensions
QUICK = torch.float32  # of what thousands of networks are drawn for


@pytest.mark.parametrize("trained", ["branches", "all"])
@pytest.mark.parametrize(
    "network", [ResNet(3, 16, 1, 0.5), ResNet(3, 16, 2, 0.5), DenseNet(4, 16), Vanilla(3, 24)], ids=str
)
def test_kernel_moments(network, trained, generator):
    found = Simulation(network, trained=trained).kernels(torch.tensor(ONE_INPUT, dtype=QUICK), 10_000, generator)
    exact = kernel_moments(network, trained)
    assert found.mean.deviation(exact.mean).abs() < STANDARD_ERRORS
    assert found.second_moment.deviation(exact.second_moment).abs() < STANDARD_ERRORS


@pytest.mark.parametrize(
    ("network", "single_sources"),
    [
        (ResNet(2, 32, 3, 0.5), False),
        (DenseNet(2, 32), True),
        pytest.param(ResNet(3, 32, 2, 0.5), False, marks=pytest.mark.slow),
        pytest.param(DenseNet(3, 32), False, marks=pytest.mark.slow),
        pytest.param(DenseNet(3, 32), True, marks=pytest.mark.slow),
    ],
)
def test_reduced_networks_path_parts_and_jacobians(network, single_sources, generator):
    """Theorem 3 and 4 at 32 units, where fourth moments have a usable standard error."""
    found = Simulation(network).matrices(torch.tensor(ONE_INPUT, dtype=QUICK), 10_000, generator, single_sources)
    for k, (layer, matrix) in enumerate(found.matrices):
        exact = reduced_moments(network, layer, matrix - 1 if single_sources else None)
        for measured, expected in (
            (found.reduced[:, k].square(), exact.second),
            (found.path_part[:, k].square(), exact.second),
            (found.jacobian_squared[:, k], exact.second),
            (found.reduced[:, k].pow(4), exact.fourth),
            (found.path_part[:, k].pow(4), exact.fourth),
            (found.jacobian_squared[:, k].square(), exact.jacobian_fourth),
        ):
            assert estimate(measured).deviation(expected).abs() < STANDARD_ERRORS


@pytest.mark.slow
def test_figure_3_at_six_units(generator):
    found = Simulation(ResNet(4, 6, 2, 0.5)).matrices(torch.tensor(ONE_INPUT), 200_000, generator)
    for k in range(8):
        for measured in (found.reduced[:, k].square(), found.path_part[:, k].square(), found.jacobian_squared[:, k]):
            assert estimate(measured).deviation(0.48828125).abs() < STANDARD_ERRORS
        assert estimate(3 * found.jacobian_squared[:, k].square()).deviation(3.680752177878754).abs() < STANDARD_ERRORS


@pytest.mark.parametrize(
    "law", ["uniform", "laplace", *(pytest.param(w, marks=pytest.mark.slow) for w in ("gaussian", "rademacher"))]
)
def test_fourth_moments_of_other_laws(law, generator):
    """E f⁴ = 3E‖J‖⁴ + (c₄-3)E Σ J⁴, at a width where fourth moments have a usable standard error."""
    network, c4 = ResNet(2, 24, 2, 0.5), weight_law(law).fourth_moment
    inputs = torch.randn(1, 12, generator=generator).to(QUICK)
    found = Simulation(network, law).matrices(inputs, 10_000, generator)
    jacobian_fourth = 3 * found.jacobian_squared.square() + (c4 - 3) * found.jacobian_fourth_powers
    for k in range(4):
        difference = found.reduced[:, k].pow(4) - jacobian_fourth[:, k]
        assert estimate(difference).deviation(0.0).abs() < STANDARD_ERRORS
        fourth, jacobian = float(found.reduced[:, k].pow(4).mean()), float(found.jacobian_squared[:, k].square().mean())
        lower, upper, printed_lower = fourth / max(3, c4), fourth / min(3, c4), fourth / c4  # theorem 4 prints 1/c₄
        assert 0.8 * lower < jacobian < 1.25 * upper
        assert (jacobian < printed_lower) == (c4 < 3) or law == "gaussian"


def test_second_moments_do_not_depend_on_the_law(generator):
    """Twelve features keep the sums of Rademacher weights from being exactly zero, where a gate is no fair coin."""
    inputs = torch.randn(1, 12, generator=generator).to(QUICK)
    expected = float(inputs.square().sum()) / 12 * kernel_moments(DenseNet(3, 9)).mean
    for law in ("rademacher", "laplace"):
        found = Simulation(DenseNet(3, 9), law).kernels(inputs, 10_000, generator)
        assert found.mean.deviation(expected).abs() < STANDARD_ERRORS


def test_memory_decides_the_chunks_and_nothing_else_does(generator):
    """A budget for a few networks at a time gives kernels of the same law and the same number."""
    inputs = torch.tensor(ONE_INPUT)
    small = Simulation(ResNet(3, 8, 2, 0.5), memory=40_000).kernels(inputs, 300, generator)
    assert small.samples.shape == (300, 1, 1)
    assert small.mean.deviation(kernel_moments(ResNet(3, 8, 2, 0.5)).mean).abs() < STANDARD_ERRORS


def test_homogeneous_in_the_inputs(seed):
    inputs = torch.tensor([[1.0, 2.0], [0.5, -1.0]])
    scales = torch.tensor([3.0, 0.5])
    runs = (
        Simulation(DenseNet(3, 6)).kernels(x, 3, torch.Generator().manual_seed(seed)).samples
        for x in (inputs, inputs * scales[:, None])
    )
    plain, scaled = runs
    assert_close(scaled, plain * scales[:, None] * scales)


def test_same_seed_same_kernels():
    inputs = torch.ones(2, 3, dtype=torch.float32)
    left, right = (Simulation(Vanilla(2, 5)).kernels(inputs, 4, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(left.samples, right.samples) and left.samples.dtype == torch.float32


def test_bad_requests(generator):
    inputs = torch.tensor(ONE_INPUT)
    with pytest.raises(InvalidInputError, match=r"There is no weight law 'cauchy'\. Known names: gaussian"):
        Simulation(Vanilla(2, 5), law="cauchy").kernels(inputs, 4, generator)
    with pytest.raises(
        TooLargeError, match=r"One network with explicit weights needs .* sample_kernels, which draws no"
    ):
        Simulation(Vanilla(2, 500), memory=1000).kernels(inputs, 4, generator)
    with pytest.raises(InvalidInputError, match=r"one input at a time, got 2 inputs"):
        Simulation(Vanilla(2, 5)).matrices(torch.ones(2, 3), 4, generator)
    with pytest.raises(InvalidInputError, match=r"Only a DenseNet has one matrix per source; leave single_sources out"):
        Simulation(Vanilla(2, 5)).matrices(inputs, 4, generator, single_sources=True)
    with pytest.raises(InvalidInputError, match=r"networks must be at least 1, got 0"):
        Simulation(Vanilla(2, 5)).kernels(inputs, 0, generator)
