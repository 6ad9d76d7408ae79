import math

import mpmath as mp
import pytest
import torch

from skiplens.base.errors import DidNotConverge
from skiplens.kernels.arc_cosine import angle_of, correlation_of_angle, correlation_of_supplement
from skiplens.kernels.infinite_network import Stretch, infinite_densenet, infinite_resnet, infinite_vanilla
from skiplens.kernels.tables import tabulate
from tests.kernels import reference

LIMITS = [
    *(infinite_resnet(torch.full((depth,), a, dtype=torch.float64), m) for depth, a, m in [
        (1, 0.5, 2), (10, 0.09, 2), (10, 1.0, 3), (100, 9e-4, 2), (100, 0.01, 3), (100, 1.0, 2), (300, 1e-8, 2),
        (50, 3.0, 5),
    ]),
    infinite_resnet(torch.tensor([0.0, 1e-3, 2.0, 0.1], dtype=torch.float64), 2, True),
    infinite_densenet(1), infinite_densenet(100), infinite_vanilla(3), infinite_vanilla(100, True),
]  # fmt: skip


def table_of(limit, accuracy=1e-12):
    return tabulate(lambda correlation: torch.stack(limit.recursion(correlation)), limit.stretch, accuracy)


def places_at_all_scales(generator):
    """Angles log-uniform from both ends, and uniform between, each as an angle and as a correlation."""
    small = 10 ** (torch.rand(400, generator=generator) * 12 - 12)
    return [
        correlation_of_angle(small * math.pi / 2),
        correlation_of_supplement(small * math.pi / 2),
        correlation_of_angle(torch.rand(400, generator=generator) * math.pi),
    ]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.layer.__name__}{limit.depth}")
def test_table_agrees_with_the_recursion_everywhere(limit, generator):
    tables = table_of(limit)
    assert all(table.error <= 1e-12 for table in tables)
    peaks = limit.at_equal_inputs()
    for correlation in places_at_all_scales(generator):
        for number, expected in enumerate(limit.recursion(correlation)):
            deviation = (tables[number](angle_of(correlation)) - expected).abs().max() / peaks[number]
            assert deviation < 2e-12  # the table promises 1e-12 where it looked


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param(infinite_resnet(torch.full((10_000,), 1.0, dtype=torch.float64), 2), marks=pytest.mark.slow),
        pytest.param(infinite_densenet(10_000), marks=pytest.mark.slow),
        infinite_densenet(1_000),
    ],
)
def test_thousands_of_layers(limit, generator):
    with torch.no_grad():
        _, table = table_of(limit)
        correlation = places_at_all_scales(generator)[0]
        found, expected = table(angle_of(correlation)), limit.recursion(correlation).ntk
    assert (found - expected).abs().max() / limit.at_equal_inputs().ntk < 2e-12


def test_table_against_mpmath():
    _, table = table_of(infinite_resnet(torch.full((20,), 0.25), 2))
    angles = [1e-7, 0.3, 2.0, 3.14]
    found = table(torch.tensor(angles)) * 1.25**20
    with mp.workdps(40):
        expected = [float(reference.resnet(mp.cos(mp.mpf(a)), [mp.mpf("0.25")] * 20, 2)[1]) for a in angles]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=1e-12 * 2 * 20 * 0.25 * 1.25**19)


def test_derivative_by_the_angle_equals_that_of_the_recursion():
    limit = infinite_resnet(torch.full((10,), 0.5), 2)
    angle = torch.linspace(0.01, 3.1, 50).requires_grad_()
    (found,) = torch.autograd.grad(table_of(limit)[1](angle).sum(), angle)
    (expected,) = torch.autograd.grad(limit.recursion(correlation_of_angle(angle)).ntk.sum(), angle)
    # differentiating a polynomial of degree 9 on 32 pieces multiplies its error by about 9² · 10
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_derivative_by_the_scales_goes_through_the_table():
    angle = torch.tensor([0.01, 0.5, 2.0])

    def by_table(scales):
        return table_of(infinite_resnet(scales, 2))[1](angle).sum()

    def by_recursion(scales):
        return infinite_resnet(scales, 2).recursion(correlation_of_angle(angle)).ntk.sum()

    gradients = []
    for function in (by_table, by_recursion):
        scales = torch.tensor([0.5, 0.2, 0.9], requires_grad=True)
        gradients.append(torch.autograd.grad(function(scales), scales)[0])
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=0)


def test_an_accuracy_that_cannot_be_reached_is_refused():
    with pytest.raises(DidNotConverge, match=r"reached an error of .* not the wanted accuracy of 1\.0e-20.*recursion"):
        table_of(infinite_densenet(2), accuracy=1e-20)


def test_not_a_number_does_not_pass_the_check():
    def broken(correlation):
        return torch.full((1, *correlation.below_one.shape), math.nan)

    with pytest.raises(DidNotConverge):
        tabulate(broken, Stretch(1.0, 1.0), 1e-6)


def test_a_kernel_that_is_zero_everywhere():
    _, table = table_of(infinite_resnet(torch.zeros(2), 2))
    assert float(table(torch.tensor([1.0]))) == 0
