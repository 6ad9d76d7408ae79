"""Closed forms of linear networks against the note's tables and dense autograd."""

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.linalg.second_moments import second_moments
from skiplens.papers.li2016_shortcuts.hessian.linear import (
    LinearUnit,
    linear_gradient,
    linear_hessian,
    linear_loss,
    plain_units,
    shortcut_units,
)
from skiplens.papers.li2016_shortcuts.hessian.linear_inertia import linear_spectrum
from skiplens.papers.li2016_shortcuts.hessian.spectrum import spectrum_of
from tests.papers.li2016_shortcuts.hessian.reference import autograd_hessian, data, network_loss, random_task, stacked
from tests.tolerances import assert_close

# loss, gradient norm, trace, Frobenius norm, H[0, 1], H[1, d² + d], H[-1, 2], largest, smallest, decile, negative
TABLE = {
    "S3 n=1": (3, 1, 1.148379531450968, 2.338045500800153, 24.34663792761237, 15.11810777931686, 0.0851636080946,
               0.7906372135654, 0.4065963637982, 9.161432611350275, -1.831500139841951, 0.1033878266141289, 30),
    "S3 n=2": (3, 2, 1.218608515701894, 1.066797751565691, 3.219806889857039, 5.009882307710746, 0.0587559246566,
               0.5308955022870, 0.0160750278110, 2.571790106371141, -1.054920708749722, 0.1093909802673842, 26),
    "S3 n=3": (3, 3, 0.888118837880767, 0.151448489511006, 0.273685962497493, 1.131012226079726, 0.0065186789296,
               0.1217408705250, 0.0006190564254, 0.317407969365413, -0.290882475307864, 0.0215583017546666, 25),
    "S3 plain": (3, 0, 0.500868448559272, 0.006609741739019, 0.001436099623468, 0.060294642312388, 0.0000248446897,
                 0.0005566304292, 0.0011528610450, 0.035358944337356, -0.021926326177069, 2.8374479338e-06, 29),
    "S10 n=1": (10, 1, 180.7841827928260, 890.122017636545, 27810.75386867602, 9527.70692869016, -2.9745252332654,
                19.052344367463, -4.4612302435899, 5473.08668394916, -1041.42540971790, 0.0082649946525, 589),
    "S10 n=2": (10, 2, 7.347758808083716, 21.03979074458297, 678.988758396792, 192.3118738249454, 0.8210060953450,
                5.6224582109261, -0.2324927401669, 91.6362411069627, -20.8568970667371, 0.0256309588239, 571),
    "S10 n=3": (10, 3, 3.168265195205735, 4.586160882305099, 158.6042070782534, 41.42538975060826, -0.0364974268198,
                0.1018791468582, 0.0101295931594, 15.4273952784975, -4.13560317861890, 0.0192852092088, 587),
    "S10 plain": (10, 0, 0.503152329286320, 0.032069928392146, 0.416207373978504, 0.462407151160147, 0.0001767639603,
                  0.0010194750732, 0.0003819935773, 0.230724131607092, -0.095794006071387, 2.678545529e-06, 607),
}  # fmt: skip


def network(d, branch_depth):
    weights = stacked(d, 6 if d == 3 else 12, 0.4)
    return plain_units(weights) if branch_depth == 0 else shortcut_units(weights, branch_depth)


@pytest.mark.parametrize("row", TABLE)
def test_reference_table(row):
    d, branch_depth, loss, gradient, trace, norm, *rest = TABLE[row]
    units, moments = network(d, branch_depth), second_moments(*data(d, 8 if d == 3 else 40))
    H = linear_hessian(units, moments)
    found = [linear_loss(units, moments), linear_gradient(units, moments).norm(), H.trace(), H.norm()]
    for value, expected in zip(found, (loss, gradient, trace, norm), strict=True):
        # The smallest gradient norm of the table is printed with 13 significant digits.
        assert_close(value, torch.tensor(expected), relative=1e-12 if expected > 0.01 else 1e-11)
    spectrum = spectrum_of(H)
    entries = torch.stack([H[0, 1], H[1, d * d + d], H[-1, 2]])
    assert (entries - torch.tensor(rest[:3])).abs().max() < 1e-12 * max(1, spectrum.largest)  # 13 digits printed
    values = torch.tensor([spectrum.largest, spectrum.smallest, spectrum.absolute_quantile()])
    assert (values - torch.tensor(rest[3:6])).abs().max() < 1e-11 * max(1, spectrum.largest)  # the note's tolerance
    assert spectrum.count_below(0.0) == rest[6]
    assert linear_spectrum(units, moments).count_below(0.0) == rest[6]


@pytest.mark.parametrize("branch_depth", [1, 2, 3, 0])
@pytest.mark.parametrize("units", [1, 2, 4, 8])
def test_hessian_and_gradient_are_those_of_autograd(branch_depth, units, generator):
    x, y = random_task(generator)
    weights = 0.5 * torch.randn(units * max(1, branch_depth), 3, 3, generator=generator)
    chain = shortcut_units(weights, branch_depth) if branch_depth else plain_units(weights)
    loss = network_loss(x, y, max(1, branch_depth), shortcut=branch_depth > 0)
    moments = second_moments(x, y)
    expected = autograd_hessian(loss, list(weights))
    assert_close(linear_hessian(chain, moments), expected)
    leaves = [w.clone().requires_grad_() for w in weights]
    gradients = torch.autograd.grad(loss(leaves), leaves)
    assert_close(linear_gradient(chain, moments), torch.cat([g.T.reshape(-1) for g in gradients]))


def test_rectangular_units_with_any_shortcut(generator):
    shapes = [[(4, 3), (5, 4)], [(2, 5)], [(6, 2), (3, 6), (4, 3)]]  # 2, 1 and 3 matrices
    branches = [[0.5 * torch.randn(*shape, generator=generator) for shape in unit] for unit in shapes]
    shortcuts = [torch.randn(5, 3, generator=generator), None, torch.randn(4, 2, generator=generator)]
    x, y = torch.randn(9, 3, generator=generator), torch.randn(9, 4, generator=generator)

    def loss(weights):
        weights, h = iter(weights), x.T
        for unit, shortcut in zip(shapes, shortcuts, strict=True):
            z = h
            for _ in unit:
                z = next(weights) @ z
            h = z if shortcut is None else z + shortcut @ h
        return (y.T - h).square().sum() / (2 * len(x))

    units = [LinearUnit(tuple(branch), shortcut) for branch, shortcut in zip(branches, shortcuts, strict=True)]
    moments = second_moments(x, y)
    expected = autograd_hessian(loss, [matrix for branch in branches for matrix in branch])
    assert_close(linear_hessian(units, moments), expected)
    eigenvalues = torch.linalg.eigvalsh(expected)
    levels = ((eigenvalues[1:] + eigenvalues[:-1]) / 2)[eigenvalues.diff() > 1e-8 * eigenvalues.abs().max()]
    counted = linear_spectrum(units, moments)
    assert [counted.count_below(v) for v in levels.tolist()] == [int((eigenvalues < v).sum()) for v in levels]


def test_parts_add_up_and_have_their_properties(generator):
    x, y = random_task(generator)
    units, moments = shortcut_units(0.3 * torch.randn(8, 3, 3, generator=generator)), second_moments(x, y)
    gauss_newton, residual = (linear_hessian(units, moments, part) for part in ("gauss_newton", "residual"))
    assert_close(gauss_newton + residual, linear_hessian(units, moments))
    eigenvalues = torch.linalg.eigvalsh(gauss_newton)
    assert eigenvalues.min() > -1e-12 and int((eigenvalues > 1e-10).sum()) == 9
    fitted = second_moments(x, x @ _whole(units).T)  # every target is reached: G = 0
    assert linear_hessian(units, fitted, "residual").abs().max() < 1e-14


def _whole(units):
    product = torch.eye(3)
    for unit in units:
        product = (torch.eye(3) + unit.matrices[1] @ unit.matrices[0]) @ product
    return product


def test_float32_is_near_float64(generator):
    x, y = random_task(generator)
    weights = 0.3 * torch.randn(6, 3, 3, generator=generator)
    exact = linear_hessian(shortcut_units(weights), second_moments(x, y))
    single = linear_hessian(shortcut_units(weights.float()), second_moments(x.float(), y.float()))
    assert single.dtype == torch.float32
    assert_close(single, exact.float())


@pytest.mark.parametrize(("make", "message"), [
    (lambda: LinearUnit(()), "at least one matrix"),
    (lambda: LinearUnit((torch.zeros(2, 3), torch.zeros(2, 3))), r"shape \(2, 3\) cannot follow one of shape \(2, 3\)"),
    (lambda: LinearUnit((torch.zeros(2, 3),), torch.eye(3)), r"must have the shape \(2, 3\); got \(3, 3\)"),
    (lambda: LinearUnit((torch.full((2, 2), torch.inf),)), "weights hold inf"),
])  # fmt: skip
def test_units_that_make_no_sense(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


@pytest.mark.parametrize(("units", "message"), [
    ([], "at least one unit"),
    ([LinearUnit((torch.zeros(2, 3),))] * 2, "takes 3 features cannot follow one that gives 2"),
    ([LinearUnit((torch.zeros(2, 3),))], "maps 3 features to 2, but the moments are of 3 features and 3 targets"),
])  # fmt: skip
def test_chains_that_make_no_sense(units, message):
    moments = second_moments(*data(3, 8))
    with pytest.raises(InvalidInputError, match=message):
        linear_hessian(units, moments)
    with pytest.raises(InvalidInputError, match=message):
        linear_spectrum(units, moments).index  # noqa: B018 - the count is what raises


@pytest.mark.parametrize("part", ["all", "gauss_newton", "residual"])
def test_a_matrix_can_be_written_again(part, generator):
    units, moments = network(3, 2), second_moments(*data(3, 8))
    place = torch.full((54, 54), torch.nan)
    assert linear_hessian(units, moments, part, out=place) is place
    assert torch.equal(place, linear_hessian(units, moments, part))


@pytest.mark.parametrize("out", [torch.zeros(54, 53, dtype=torch.float64), torch.zeros(54, 54, dtype=torch.float32)])
def test_a_matrix_that_does_not_fit(out):
    with pytest.raises(InvalidInputError, match=r"out must be a 54 × 54 matrix of torch.float64 on cpu; got"):
        linear_hessian(network(3, 2), second_moments(*data(3, 8)), out=out)


def test_unknown_part():
    with pytest.raises(InvalidInputError, match="part must be all, gauss_newton or residual; got 'fisher'"):
        linear_hessian(network(3, 2), second_moments(*data(3, 8)), "fisher")
