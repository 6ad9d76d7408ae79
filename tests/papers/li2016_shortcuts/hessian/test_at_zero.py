"""Theorem 2 against dense autograd, the note's tables and central differences."""

import math

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.papers.li2016_shortcuts.hessian.activations import BranchActivations
from skiplens.papers.li2016_shortcuts.hessian.at_zero import hessian_at_zero
from skiplens.papers.li2016_shortcuts.hessian.spectrum import Spectrum, spectrum_of
from tests.papers.li2016_shortcuts.hessian.reference import autograd_hessian, data, network_loss, random_task
from tests.tolerances import assert_close

SMOOTH = [("identity",) * 3, ("tanh",) * 3, ("gelu", "tanh", "gelu"), ("relu", "gelu", "tanh")]


@pytest.mark.parametrize("names", SMOOTH, ids="-".join)
@pytest.mark.parametrize(("depth", "branch_depth"), [(k, n) for k in range(1, 9) for n in (1, 2, 3) if k % n == 0])
def test_closed_form_is_the_hessian_by_autograd(depth, branch_depth, names, generator):
    units = depth // branch_depth
    x, y = random_task(generator)
    zero = [torch.zeros(3, 3)] * (units * branch_depth)
    expected = autograd_hessian(network_loss(x, y, branch_depth, names), zero)
    point = hessian_at_zero(x, y, units, branch_depth, BranchActivations(*names))
    assert point.params == len(expected)
    assert (point.dense() - expected).abs().max() <= 1e-14 * max(1, expected.abs().max())
    _same_statistics(point.spectrum, spectrum_of(expected))


def _same_statistics(found: Spectrum, dense: Spectrum) -> None:
    absolute = 1e-12 * max(dense.largest_absolute, 1e-12)  # eigenvalues are absolute to the largest one
    near = lambda value: pytest.approx(value, rel=0, abs=absolute)  # noqa: E731
    assert found.size == dense.size
    assert found.smallest == near(dense.smallest) and found.largest == near(dense.largest)
    assert found.absolute_value(1) == near(dense.absolute_value(1))
    assert found.absolute_quantile() == near(dense.absolute_quantile())
    assert found.index == dense.index


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dense_matrix_has_the_dtype_of_the_data(dtype, generator):
    x, y = (part.to(dtype) for part in random_task(generator))
    for branch_depth in (1, 2, 3):
        assert hessian_at_zero(x, y, 2, branch_depth).dense().dtype == dtype


TWO = {  # largest and smallest singular value of G_0; condition numbers for pre = identity, relu, tanh
    (3, 8): (0.4377971222952228, 0.2168005034260824, 2.019354731085708, 34.6822431557618, 2.022764888141508),
    (10, 40): (0.6838391042401889, 0.0741775575009545, 9.2189487936616, 65.1726659516065, 9.827987269367721),
}


@pytest.mark.parametrize("shape", TWO)
@pytest.mark.parametrize("units", [1, 7, 10_000])
def test_two_matrices_per_unit_reference_table(shape, units):
    x, y = data(*shape)
    largest, smallest, *conditions = TWO[shape]
    spectrum = hessian_at_zero(x, y, units).spectrum
    assert_close(torch.tensor([spectrum.largest, spectrum.absolute_value(1)]), torch.tensor([largest, smallest]))
    assert spectrum.smallest == -spectrum.largest and spectrum.index == 0.5
    for pre, condition in zip(("identity", "relu", "tanh"), conditions, strict=True):
        found = hessian_at_zero(x, y, units, activations=BranchActivations(pre=pre)).spectrum
        assert_close(torch.tensor(found.full_condition_number), torch.tensor(condition))
    assert spectrum.multiplicities.tolist() == [units * shape[0]] * (2 * shape[0])


def test_slope_of_the_reference_data_is_exact():
    expected = torch.tensor([[6153, -2409, -797], [5041, 5520, 506], [1803, 1606, 5164]]) / 20000
    assert_close(hessian_at_zero(*data(3, 8), units=1).slope, expected.to(torch.float64))


def test_tenth_percentile_sits_on_a_jump():
    spectrum = hessian_at_zero(*data(10, 40), units=3).spectrum
    assert spectrum.absolute_quantile() == pytest.approx(0.0741775575, rel=1e-9)
    interpolated = spectrum.expanded().abs().quantile(0.1).item()
    assert interpolated == pytest.approx(0.1415817744, rel=1e-9)  # what the other rule would say


ONE = {  # units: largest, smallest, third statistic, number of negative ones (its name: the smallest |λ| or the decile)
    (3, 8, 2): (1.1474916398778, -0.4252331282983, 0.0846034746652, 6, "least"),
    (10, 40, 2): (2.0004191121467, -0.6830095743031, 0.0736095724721, 55, "least"),
    (3, 8, 4): (2.5946230455536, -0.5838231212354, 0.1552324864000, 19, "decile"),
    (10, 40, 4): (4.6753768861112, -0.9410007714242, 0.1776462229358, 165, "decile"),
    (3, 8, 8): (5.5100534888154, -1.0875514050407, 0.1827660444121, 42, "decile"),
    (10, 40, 8): (10.0265328790428, -1.8771069159851, 0.1827726122907, 387, "decile"),
}


@pytest.mark.parametrize(("d", "m", "units"), [key if key[0] == 3 or key[2] < 8 else
                                               pytest.param(*key, marks=pytest.mark.slow) for key in ONE])  # fmt: skip
def test_one_matrix_per_unit_reference_table(d, m, units):
    largest, smallest, third, negative, name = ONE[d, m, units]
    spectrum = hessian_at_zero(*data(d, m), units, branch_depth=1).spectrum
    found = spectrum.absolute_value(1) if name == "least" else spectrum.absolute_quantile()
    expected = torch.tensor([largest, smallest, third])
    assert_close(torch.tensor([spectrum.largest, spectrum.smallest, found]), expected, relative=1e-11)
    assert spectrum.count_below(0.0) == negative


def test_ten_thousand_units_of_one_matrix():
    # The largest eigenvalue is at least R λ_max(B + S) − uᵀSu, and at most R times the norm of a full block row.
    x, y = data(3, 8)
    R, point = 10_000, hessian_at_zero(x, y, 10_000, branch_depth=1)
    B, A = point.toeplitz
    values, vectors = torch.linalg.eigh((A + A.T) / 2)
    u, S = vectors[:, -1], (A + A.T) / 2 - B
    spectrum = point.spectrum
    assert spectrum.size == 90_000
    assert R * values[-1].item() - (u @ S @ u).item() <= spectrum.largest <= R * torch.linalg.matrix_norm(A, 2).item()
    # Linear growth: from 5,000 to 10,000 units it doubles, up to a constant.
    half = hessian_at_zero(x, y, 5_000, branch_depth=1).spectrum
    assert spectrum.largest == pytest.approx(2 * half.largest, rel=1e-3)
    assert spectrum.absolute_quantile() == pytest.approx(half.absolute_quantile(), rel=1e-2)
    assert abs(spectrum.index - half.index) < 1e-3


def test_one_matrix_with_a_post_activation_that_has_curvature(generator):
    x, y = random_task(generator, samples=5)
    names = ("tanh", "identity", "gelu")
    expected = autograd_hessian(network_loss(x, y, 1, names), [torch.zeros(3, 3)] * 4)
    assert_close(hessian_at_zero(x, y, 4, 1, BranchActivations(*names)).dense(), expected, relative=1e-14)


# Losses of order 1 are rounded by 1e-16 and divided by 4h²; with a post ReLU the differences leave a term of order h².
@pytest.mark.parametrize(("places", "error"), [(("mid",), 1e-8), (("mid", "post"), 1e-5), (("pre",), 1e-8)])
def test_relu_counts_with_half_its_slope_as_central_differences_do(places, error, generator):
    x, y = random_task(generator)
    names = tuple("relu" if place in places else "identity" for place in ("pre", "mid", "post"))
    loss, h = network_loss(x, y, 2, names), 1e-3
    size = 9
    expected = torch.zeros(size, size)  # rows: second matrix, columns: first; both in columns-stacked order
    for row in range(size):
        for column in range(size):
            for sign_1 in (1, -1):
                for sign_2 in (1, -1):
                    W_1, W_2 = torch.zeros(3, 3), torch.zeros(3, 3)
                    W_1[column % 3, column // 3] = sign_1 * h
                    W_2[row % 3, row // 3] = sign_2 * h
                    expected[row, column] += sign_1 * sign_2 * loss([W_1, W_2]) / (4 * h * h)
    found = hessian_at_zero(x, y, 1, 2, BranchActivations(*names)).dense()[size:, :size]
    assert_close(found, expected, relative=error)


def test_biased_network_reference_and_zeros():
    x, y = data(3, 8)
    units = 4
    point = hessian_at_zero(x, y, units, activations=BranchActivations(mid="relu"), bias=True)
    assert_close(2 * point.slope[:, 3], torch.tensor([-0.7925, -0.235, -0.19]))
    expected = torch.tensor([0.4655499538640, 0.1817073731520, 0.1147784022559])
    spectrum = point.spectrum
    assert_close(spectrum.values[spectrum.values > 0].flip(0), expected, relative=1e-12)
    assert spectrum.multiplicities[spectrum.values == 0].tolist() == [units * 3]
    assert spectrum.full_condition_number == math.inf
    assert point.params == units * (9 + 3 + 9) == spectrum.size
    dense = spectrum_of(point.dense())
    assert_close(spectrum.expanded(), dense.expanded())


def test_biased_network_is_the_hessian_by_autograd(generator):
    x, y = random_task(generator)

    def loss(weights):
        h = x
        for W_1, W_2 in zip(weights[::2], weights[1::2], strict=True):
            h = h + torch.tanh(torch.cat([h, torch.ones(len(h), 1)], 1) @ W_1.T) @ W_2.T
        return (y - h).square().sum() / (2 * len(x))

    expected = autograd_hessian(loss, [torch.zeros(3, 4), torch.zeros(3, 3)] * 2)
    assert_close(hessian_at_zero(x, y, 2, activations=BranchActivations(mid="tanh"), bias=True).dense(), expected)


def derivative_along(point, direction):
    """The n-th derivative of L(t V) at t = 0: n! Σ_r ⟨s G_0, V_{r,n} … V_{r,1}⟩."""
    eye = torch.eye(direction.shape[-1])
    branches = direction.unflatten(0, (point.units, point.branch_depth))
    products = torch.stack([torch.linalg.multi_dot([*branch.flip(0), eye]) for branch in branches])
    return math.factorial(point.branch_depth) * (point.slope * products).sum()


@pytest.mark.parametrize(("branch_depth", "expected"), [(2, 13.5522), (3, 121.9698), (4, 1463.6376)])
def test_first_derivative_along_ones(branch_depth, expected):
    point = hessian_at_zero(*data(3, 8), units=2, branch_depth=branch_depth)
    assert point.order == branch_depth
    assert_close(derivative_along(point, torch.ones(2 * branch_depth, 3, 3)), torch.tensor(expected))


@pytest.mark.parametrize("branch_depth", [1, 2, 3])
def test_first_derivative_along_any_direction_by_autograd(branch_depth, generator):
    x, y = random_task(generator)
    names = ("tanh", "gelu", "tanh")
    direction = torch.randn(2 * branch_depth, 3, 3, generator=generator)
    t = torch.zeros((), requires_grad=True)
    value = network_loss(x, y, branch_depth, names)([t * V for V in direction])
    derivatives = []
    for _ in range(branch_depth):
        (value,) = torch.autograd.grad(value, t, create_graph=True)
        derivatives.append(value.detach())
    point = hessian_at_zero(x, y, 2, branch_depth, BranchActivations(*names))
    assert all(lower.abs() < 1e-14 for lower in derivatives[:-1])
    assert_close(derivative_along(point, direction), derivatives[-1])


def test_kind_of_stationary_point():
    x, y = data(3, 8)
    assert [hessian_at_zero(x, y, 2, n).order for n in (1, 2, 3)] == [1, 2, 3]
    assert hessian_at_zero(x, x, 2).order is None
    flat = hessian_at_zero(x, y, 2, 3).spectrum
    assert flat.size == 54 and flat.largest == 0 and math.isnan(flat.condition_number)


@pytest.mark.parametrize(("call", "message"), [
    (lambda x, y: hessian_at_zero(x, y, 2, activations=BranchActivations(mid="softplus")), "mid activation softplus"),
    (lambda x, y: hessian_at_zero(x, y, 2, 1, BranchActivations(post="sigmoid")), "post activation sigmoid"),
    (lambda x, y: hessian_at_zero(x, y, 2, 1, BranchActivations(post="relu")), "relu has no second derivative"),
    (lambda x, y: hessian_at_zero(x, y, 2, 3, bias=True), "two matrices per unit .theorem 1.; got 3"),
])  # fmt: skip
def test_what_the_closed_form_does_not_cover(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call(*data(3, 8))


def test_a_pre_activation_need_not_vanish(generator):
    x, y = random_task(generator)
    found = hessian_at_zero(x, y, 1, activations=BranchActivations(pre="sigmoid")).slope
    assert_close(found, (x - y).T @ torch.sigmoid(x) / len(x))
