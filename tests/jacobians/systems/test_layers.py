"""Each layer's value and derivatives against the paper's formulas and against the reference tables."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.func import jacrev

from skiplens.linalg.singular_values import (
    largest_singular_value,
    smallest_gram_eigenvalue,
    smallest_singular_value,
)
from tests.jacobians.systems.reference import numbers, sines
from tests.tolerances import assert_close


@pytest.fixture
def ps():
    from skiplens.jacobians import systems as parameterised_systems

    return parameterised_systems


def every_layer():
    from skiplens.jacobians import systems as ps

    kernel = ps.WeightNormalised(3, 8, 0.3, 0.7)
    inner = ps.Composition((ps.Affine(ps.Free(2, 3), True), ps.BatchNorm(2, 0.1), ps.ScaleShift(2)))
    return {
        "free": ps.Affine(ps.Free(2, 3)),
        "bias": ps.Affine(ps.WeightNormalised(2, 3, 0.25), True),
        "rows": ps.Affine(ps.WeightNormalised(2, 3, 0.25, 0.5)),
        "entries": ps.Affine(ps.EntryNormalised(2, 3, 0.25, 0.5)),
        "convolution": ps.Affine(ps.Convolution(kernel, 2, (4, 3), (2, 2), (2, 1), (1, 0))),
        "entry convolution": ps.Affine(
            ps.Convolution(ps.EntryNormalised(3, 8, 0.3), 2, (4, 3), (2, 2), (2, 1), (1, 0)), True
        ),
        "tanh": ps.Elementwise(ps.NONLINEARITIES["tanh"], 3),
        "batch norm": ps.BatchNorm(2, 0.1),
        "image batch norm": ps.BatchNorm(2, 0.1, positions=3),
        "layer norm": ps.SampleNorm(3, epsilon=0.1),
        "group norm": ps.SampleNorm(6, 2, epsilon=0.1),
        "rms norm": ps.SampleNorm(4, 2, epsilon=0.1, is_centred=False),
        "scale": ps.ScaleShift(2, positions=3),
        "fixed": ps.FixedLinear(sines(2, 3)),
        "composition": inner,
        "residual": ps.Residual(ps.SkipMap.truncation(2, 3), inner),
    }


NAMES = [
    "free", "bias", "rows", "entries", "convolution", "entry convolution", "tanh", "batch norm", "image batch norm",
    "layer norm", "group norm", "rms norm", "scale", "fixed", "composition", "residual",
]  # fmt: skip


def test_the_list_of_names_is_complete():
    assert NAMES == list(every_layer())


@pytest.fixture(params=NAMES)
def case(request, generator):
    layer = every_layer()[request.param]
    weights = torch.randn(layer.parameters, generator=generator)
    return layer, weights, torch.randn(layer.inputs, 4, generator=generator)


def rows_derivative(rows, epsilon):
    """Equation 30: for each row s^(−1/2) (δ_jk − w_j w_k/s), s = ε + |w|²."""
    s = (epsilon + rows.square().sum(1))[:, None, None]
    return s**-0.5 * (torch.eye(rows.shape[1]) - torch.einsum("rj,rk->rjk", rows, rows) / s)


def matrix_derivative(P, weights):
    """DP(w) by equations 30 and 32; of a convolution, the Toeplitz matrices of the single entries of its kernel."""
    from skiplens.jacobians import systems as ps

    if isinstance(P, ps.Convolution):
        free = replace(P, kernel=ps.Free(P.kernel.outputs, P.kernel.inputs))
        units = torch.eye(P.kernel.outputs * P.kernel.inputs)
        return torch.stack([free.matrix(unit).flatten() for unit in units], 1) @ matrix_derivative(P.kernel, weights)
    if isinstance(P, ps.WeightNormalised):
        return P.factor * torch.block_diag(*rows_derivative(weights.reshape(P.outputs, P.inputs), P.epsilon))
    if isinstance(P, ps.EntryNormalised):
        return P.factor * torch.diag(P.epsilon * (P.epsilon + weights.square()) ** -1.5)
    return torch.eye(P.parameters)


def df(layer, weights, Z):
    """Df in closed form: sections 2.1 and 2.2, and for a composition proposition 4.2."""
    from skiplens.jacobians import systems as ps

    if isinstance(layer, ps.Residual):
        return df(layer.branch, weights, Z)
    if isinstance(layer, ps.Composition):
        derivative = torch.zeros(Z.numel(), 0)
        for inner, own, data in zip(layer.layers, layer.split(weights), layer.states(weights, Z)[:-1], strict=True):
            derivative = torch.cat([jf(inner, own, data) @ derivative, df(inner, own, data)], dim=1)
        return derivative
    if isinstance(layer, ps.Affine):
        P, samples = layer.parameterisation, Z.shape[1]
        DP = matrix_derivative(P, weights[: P.parameters])
        bias = torch.kron(torch.eye(layer.outputs), torch.ones(samples, 1)) if layer.has_bias else torch.zeros(0)
        linear = torch.kron(torch.eye(layer.outputs), Z.T.contiguous()) @ DP
        return torch.cat([linear, bias], 1) if layer.has_bias else linear
    if isinstance(layer, ps.ScaleShift):
        member = torch.eye(layer.channels).repeat_interleave(layer.positions * Z.shape[1], 0)
        return torch.cat([member * Z.reshape(-1, 1), member], 1)
    return torch.zeros(layer.outputs * Z.shape[1], 0)


def jf(layer, weights, Z):
    """Jf in closed form."""
    from skiplens.jacobians import systems as ps

    eye = torch.eye(Z.shape[1])
    if isinstance(layer, ps.Residual):
        return torch.kron(layer.skip.matrix, eye) + jf(layer.branch, weights, Z)
    if isinstance(layer, ps.Composition):
        jacobian = torch.eye(Z.numel())
        for inner, own, data in zip(layer.layers, layer.split(weights), layer.states(weights, Z)[:-1], strict=True):
            jacobian = jf(inner, own, data) @ jacobian
        return jacobian
    if isinstance(layer, ps.Affine):
        P = layer.parameterisation
        return torch.kron(P.matrix(weights[: P.parameters]), eye)
    if isinstance(layer, ps.ScaleShift):
        return torch.diag(weights[: layer.channels].repeat_interleave(layer.positions * Z.shape[1]))
    if isinstance(layer, ps.FixedLinear):
        return torch.kron(layer.matrix, eye)
    if isinstance(layer, ps.Elementwise):
        return torch.diag(1 - Z.tanh().square().flatten())  # the one nonlinearity of the list is tanh
    return norm_jacobian(layer, Z)


def norm_jacobian(layer, Z):
    """For each row that is normalised √n times equation 27, after the centring of equation 29."""
    is_batch = layer.couples_samples
    index = torch.arange(Z.numel()).reshape(Z.shape)
    places = index.reshape(layer.channels, -1) if is_batch else index.T.reshape(layer.groups * Z.shape[1], -1)
    n = places.shape[1]
    centre = torch.eye(n) - 1 / n if is_batch or layer.is_centred else torch.eye(n)
    jacobian = torch.zeros(Z.numel(), Z.numel())
    for place, block in zip(places, rows_derivative(Z.flatten()[places] @ centre, n * layer.epsilon), strict=True):
        jacobian[place[:, None], place] = math.sqrt(n) * block @ centre
    return jacobian


def test_parameter_derivative_is_that_of_the_paper(case):
    layer, weights, Z = case
    actual = layer.parameter_derivative(weights, Z)
    assert actual.shape == (layer.outputs * 4, layer.parameters)
    if layer.parameters:
        assert_close(actual, df(layer, weights, Z))


def test_input_jacobian_is_that_of_the_paper(case):
    layer, weights, Z = case
    assert_close(layer.input_jacobian(weights, Z), jf(layer, weights, Z))


def test_samples_are_coupled_exactly_where_the_layer_says_so(case):
    layer, weights, Z = case
    J = layer.input_jacobian(weights, Z).reshape(layer.outputs, 4, layer.inputs, 4)
    across = J * (1 - torch.eye(4))[None, :, None, :]
    assert bool(across.abs().max() > 0) == layer.couples_samples


def bent_rows(rows, epsilon):
    """Equations 28 and 31: for each row s^(−3/2) (3 w_j w_k w_n/s − δ_jk w_n − δ_kn w_j − δ_jn w_k), s = ε + |w|²."""
    s, eye = (epsilon + rows.square().sum(1))[:, None, None, None], torch.eye(rows.shape[1])
    cubic = 3 * torch.einsum("rj,rk,rn->rjkn", rows, rows, rows) / s
    mixed = [
        torch.einsum(f"{pair},r{single}->rjkn", eye, rows) for pair, single in (("jk", "n"), ("kn", "j"), ("jn", "k"))
    ]
    return s**-1.5 * (cubic - sum(mixed))


def second_derivative(layer, at):
    """That of a parameterisation by its parameters or of a norm by its data, a row for each entry of the value."""
    value = getattr(layer, "matrix", None) or partial(layer, torch.zeros(0))
    return jacrev(jacrev(lambda w: value(w).flatten()))(at).reshape(-1, at.numel(), at.numel())


def along_the_diagonal(cubes):
    """The cubes of single rows as the second derivative of all rows, zero between them."""
    rows, n = cubes.shape[:2]
    whole = torch.zeros(rows, n, rows, n, rows, n)
    for row, cube in enumerate(cubes):
        whole[row, :, row, :, row, :] = cube
    return whole.reshape(rows * n, rows * n, rows * n)


def test_second_derivatives_of_parameterisations(ps, generator):
    weights = torch.randn(12, generator=generator)
    assert not second_derivative(ps.Free(3, 4), weights).any()
    rows = along_the_diagonal(0.7 * bent_rows(weights.reshape(3, 4), 0.3))
    assert_close(second_derivative(ps.WeightNormalised(3, 4, 0.3, 0.7), weights), rows)
    bends = -3 * 0.3 * weights * (0.3 + weights.square()) ** -2.5  # equation 33, with its exponent corrected
    entries = along_the_diagonal(0.7 * bends[:, None, None, None])
    assert_close(second_derivative(ps.EntryNormalised(3, 4, 0.3, 0.7), weights), entries)


def test_second_derivative_of_a_convolution(ps, generator):
    kernel, weights = ps.WeightNormalised(2, 4, 0.3), torch.randn(8, generator=generator)
    shape = (1, (3, 3), (2, 2), (1, 1), (1, 1))
    spread = ps.Convolution(ps.Free(2, 4), *shape).derivative(weights)
    expected = torch.einsum("ek,kpq->epq", spread, second_derivative(kernel, weights))
    assert_close(second_derivative(ps.Convolution(kernel, *shape), weights), expected)


@pytest.mark.parametrize("positions", [1, 3])
def test_second_derivative_of_batch_norm(ps, positions, generator):
    """Equation 28 with both directions centred (equation 29), zero between channels."""
    Z, n = torch.randn(2 * positions, 4, generator=generator), 4 * positions
    rows, centred = Z.reshape(2, n), torch.eye(n) - 1 / n
    cubes = math.sqrt(n) * bent_rows(rows - rows.mean(1, keepdim=True), n * 0.1)
    expected = along_the_diagonal(torch.einsum("rjkm,ka,mb->rjab", cubes, centred, centred))
    assert_close(second_derivative(ps.BatchNorm(2, 0.1, positions), Z), expected)


def test_reference_values_of_weight_normalisation(ps):
    P, w = ps.WeightNormalised(2, 3, 0.25), sines(2, 3).flatten()
    expected = (
        "0.645252577625392 -0.580327509405749 0.316018638420461 "
        "-0.249266417681885 -0.114590019326454 -0.858681187817002"
    )
    assert_close(P.matrix(w).flatten(), numbers(expected))
    D, DD = P.derivative(w), second_derivative(P, w)
    entries = torch.stack([D[0, 0], D[0, 1], D[5, 4], D[0, 3]])
    assert_close(entries, numbers("0.447550896162195 0.287139876211015 -0.0851914176589994 0"))
    values = (
        "0.865799048685053 0.865799048685053 0.766815005240733 0.766815005240733 0.162252471742446 0.112722812648783"
    )
    assert_close(torch.linalg.svdvals(D), numbers(values))
    seconds = torch.stack([DD[0, 0, 0], DD[0, 1, 1], DD[0, 1, 2], DD.norm()])
    assert_close(seconds, numbers("-0.664330262684262 0.00392313977963449 -0.208745952665392 2.17045614272508"))


def test_reference_values_of_entry_normalisation(ps):
    P, w = ps.EntryNormalised(2, 3, 0.25), sines(2, 3).flatten()
    expected = (
        "0.859685793568114 -0.834350643808399 0.636032542672283 "
        "-0.498996373626905 -0.255890408262907 -0.892941919014444"
    )
    assert_close(P.matrix(w).flatten(), numbers(expected))
    slopes = "0.26658875251552 0.33499487184453 0.918992008541311 1.30164385690202 1.8068119951256 0.182458924407012"
    assert_close(P.derivative(w).diag(), numbers(slopes))
    bends = "-0.702430614938182 0.924430081014951 -2.70626031191352 3.37723700072055 2.68171453463302 0.440066129583014"
    assert_close(torch.einsum("iii->i", second_derivative(P, w)), numbers(bends))
    one, half = ps.EntryNormalised(1, 1), torch.tensor([0.5])
    at_half = torch.stack([f(half).flatten()[0] for f in (one.matrix, one.derivative, partial(second_derivative, one))])
    assert_close(at_half, numbers("0.447213595499958 0.715541752799933 -0.858650103359919"))


def test_equation_33_as_printed_is_wrong(ps):
    true = second_derivative(ps.EntryNormalised(1, 1), torch.tensor([0.5])).item()
    printed = -3 * 0.5 * (1 + 0.25) ** -1.5
    assert printed == pytest.approx(-1.073312629199899, rel=1e-14)
    assert true == pytest.approx(-0.858650103359919, rel=1e-14)
    w = torch.cos(0.7 * torch.arange(12) + 0.3)  # w_ij = cos(0.7 (4 i + j) + 0.3), 3 × 4
    exact = torch.einsum("iii->i", second_derivative(ps.EntryNormalised(3, 4, 0.05), w))
    wrong = -3 * 0.05 * w * (0.05 + w.square()) ** -1.5
    assert float((exact - wrong).abs().max()) == pytest.approx(15.76, abs=5e-3)


def test_reference_values_of_batch_norm(ps):
    layer, Z, none = ps.BatchNorm(2, 0.1), sines(2, 5), torch.zeros(0)
    expected = (
        "1.29028413826652 -1.20586119643744 0.619731662692791 -0.473545662345563 -0.230608942176309 "
        "-0.727296687230853 -0.677859802408731 1.75819164794806 -0.256811695271221 -0.0962234630372563"
    )
    assert_close(layer(none, Z).flatten(), numbers(expected))
    J, JJ = layer.input_jacobian(none, Z), second_derivative(layer, Z)
    assert_close(
        torch.stack([J[0, 0], J[0, 1], J.norm()]), numbers("0.729401556401193 0.173639384227012 3.54702873517842")
    )
    values = "1.56177610763026 " * 3 + "1.30007426283281 " * 3 + "0.380939777552272 0.219737653407114 0 0"
    assert_close(torch.linalg.svdvals(J), numbers(values))
    seconds = torch.stack([JJ[0, 0, 0], JJ[0, 1, 2], JJ.norm()])
    assert_close(seconds, numbers("-0.881905536606079 -0.213529892571248 3.60190444992554"))


def test_reference_values_of_the_division_in_batch_norm():
    """D² v at Y = Q(2, 5), without the centring: √N times the second derivative of rows with N ε in place of ε."""
    from skiplens.jacobians.systems.parameterisation import unit_rows

    DD = math.sqrt(5) * jacrev(jacrev(lambda rows: unit_rows(rows, 5 * 0.1)))(sines(2, 5))
    seconds = torch.stack([DD[0, 0, 0, 0, 0, 0], DD[0, 0, 0, 1, 0, 2], DD.norm()])
    assert_close(seconds, numbers("-1.25825604010862 -0.292212400386429 3.84182419382335"))


def test_reference_values_of_normalised_affine_layers(ps):
    rows = ps.Affine(ps.WeightNormalised(2, 3, 0.25)).parameter_derivative(sines(2, 3).flatten(), sines(3, 4))
    expected = (
        "1.49218085507708 1.14024876185339 0.997671778050953 0.894219776910318 0.208746338534858 0.16609311467784"
    )
    assert_close(torch.linalg.svdvals(rows), numbers(expected))
    assert smallest_gram_eigenvalue(rows) == 0.0
    entries = ps.Affine(ps.EntryNormalised(2, 4, 0.25)).parameter_derivative(sines(2, 4).flatten(), sines(4, 3))
    expected = (
        "2.2115744730112 2.09195730488876 0.376047286693641 0.24169485770144 0.172150077820359 0.0914471295994427"
    )
    assert_close(torch.linalg.svdvals(entries), numbers(expected))
    assert smallest_singular_value(sines(4, 3)) == pytest.approx(0.317831396153303, rel=1e-12)


@pytest.mark.parametrize(
    ("stride", "pad", "row", "squares"),
    [
        (1, 1, "6.34753155877989 0.605965100890551 27.8164905062478 10.1771631538916", {25, 30, 36}),
        (1, 0, "6.00156025287056 0.502071688340686 20.9873029283528 10.1771631538916", {16}),
        (2, 1, "4.40472621788178 1.18332180103523 13.8808668256675 6.78477543592773", {4, 6, 9}),
        (3, 0, "3.39238771796386 2.64462351568473 10.4936514641764 3.39238771796386", {4}),
    ],
)
def test_reference_values_of_convolutions(ps, stride, pad, row, squares):
    K = sines(3, 18)
    P = ps.Convolution(ps.Free(3, 18), 2, (6, 6), (3, 3), (stride, stride), (pad, pad))
    T, DP = P.matrix(K.flatten()), P.derivative(K.flatten())
    values = torch.linalg.svdvals(T)
    bound = math.sqrt(P.windows_over_a_pixel) * torch.linalg.matrix_norm(K, 2)
    assert_close(torch.stack([values[0], values[-1], T.norm(), bound]), numbers(row))
    assert {round(value) for value in torch.linalg.svdvals(DP).square().tolist()} == squares
    assert smallest_gram_eigenvalue(DP) == 0.0
    assert_close(DP.T @ DP, torch.diag((DP.T @ DP).diag()))


def test_jacobian_of_an_affine_layer_repeats_the_singular_values_of_its_matrix(ps):
    J = ps.Affine(ps.Free(2, 3)).input_jacobian(sines(2, 3).flatten(), sines(3, 4))
    expected = "1.35936740983201 " * 4 + "0.828743582647898 " * 4
    assert_close(torch.linalg.svdvals(J), numbers(expected))


@pytest.mark.parametrize("kind", ["WeightNormalised", "EntryNormalised"])
def test_scaling_law_in_epsilon(ps, kind, generator):
    w = torch.randn(6, generator=generator)
    make = getattr(ps, kind)
    assert_close(make(2, 3, 0.04).matrix(w), make(2, 3, 1.0).matrix(w / 0.2))
    assert make(2, 3, 0.04).spectral().curvature == pytest.approx(make(2, 3).spectral().curvature / 0.04)


def test_batch_norm_against_torch(ps):
    Z = sines(6, 5)
    images = Z.T.reshape(5, 2, 3)
    expected = torch.nn.functional.batch_norm(images, None, None, training=True, eps=0.1)
    assert_close(ps.BatchNorm(2, 0.1, positions=3)(torch.zeros(0), Z), expected.flatten(1).T)


def test_norms_within_samples_against_torch(ps):
    Z, none, norm = sines(6, 5), torch.zeros(0), torch.nn.functional
    images = Z.T.reshape(5, 2, 3)
    expected = norm.layer_norm(images, (3,), eps=0.1).flatten(1).T
    assert_close(ps.SampleNorm(6, 2, 0.1)(none, Z), expected)
    assert_close(ps.SampleNorm(6, 2, 0.1)(none, Z), norm.group_norm(images, 2, eps=0.1).flatten(1).T)
    assert_close(ps.SampleNorm(6, 1, 0.1, False)(none, Z), norm.rms_norm(Z.T, (6,), eps=0.1).T)


def test_norms_within_samples_stay_within_their_bounds(ps, generator):
    layer, none = ps.SampleNorm(6, 2, 0.3), torch.zeros(0)
    bound = layer.certificate(ps.DataBound.of_radius(math.inf, 4))
    for size in (0.01, 0.3, 1.0, 30.0):
        Z, v = (torch.randn(6, 4, generator=generator) for _ in range(2))
        Z, v = size * Z, v / v.norm()
        hessian = jacrev(jacrev(lambda data, v=v: (v * layer(none, data)).sum()))(Z).reshape(24, 24)
        assert layer(none, Z).norm() < bound.size
        assert largest_singular_value(layer.input_jacobian(none, Z)) <= bound.gain
        assert largest_singular_value(hessian) <= bound.bend
    constant = largest_singular_value(layer.input_jacobian(none, torch.ones(6, 4)))
    assert constant == pytest.approx(bound.gain)  # attained where a group is constant


def test_layers_agree_with_the_modules_of_the_zoo(ps):
    from skiplens.zoo.macdonald2023 import NormalisedConv2d, NormalisedLinear, Parameterisation

    linear = NormalisedLinear(3, 2, Parameterisation("entry", 0.25, 0.5))
    layer = ps.Affine(ps.EntryNormalised(2, 3, 0.25, 0.5))
    assert_close(layer(linear.weight.flatten(), sines(3, 4)), linear(sines(3, 4).T).T)
    convolution = NormalisedConv2d((2, 3), 2, Parameterisation("weight", 0.25), stride=2, padding=1)
    layer = ps.Affine(ps.Convolution(ps.WeightNormalised(3, 8, 0.25), 2, (4, 4), (2, 2), (2, 2), (1, 1)))
    images = sines(5, 32).reshape(5, 2, 4, 4)
    assert_close(layer(convolution.weight.flatten(), images.flatten(1).T), convolution(images).flatten(1).T)


def test_smallest_numbers_of_tall_and_wide_matrices(ps):
    tall = sines(4, 2)
    assert smallest_gram_eigenvalue(tall) == 0.0
    assert smallest_singular_value(tall) > 0
    assert smallest_gram_eigenvalue(tall.T) == pytest.approx(smallest_singular_value(tall) ** 2)


def test_bad_layers_are_refused(ps):
    from skiplens.base.errors import InvalidInputError

    with pytest.raises(InvalidInputError, match="0 × 3 was asked for"):
        ps.Free(0, 3)
    with pytest.raises(InvalidInputError, match="epsilon is -1"):
        ps.WeightNormalised(2, 3, -1.0)
    with pytest.raises(InvalidInputError, match="rows of 9 numbers"):
        ps.Convolution(ps.Free(1, 9), 2, (4, 4), (3, 3))
    with pytest.raises(InvalidInputError, match="no outputs"):
        ps.Convolution(ps.Free(1, 9), 1, (2, 2), (3, 3))
    with pytest.raises(InvalidInputError, match="0 channels"):
        ps.BatchNorm(0)
    with pytest.raises(InvalidInputError, match="groups of equal size"):
        ps.SampleNorm(5, 2)
    with pytest.raises(InvalidInputError, match="no layers"):
        ps.Composition(())
    with pytest.raises(InvalidInputError, match="has 2 outputs, but 'b' takes 3"):
        ps.Composition((ps.Affine(ps.Free(2, 3), name="a"), ps.Affine(ps.Free(2, 3), name="b")))
    with pytest.raises(InvalidInputError, match="they must agree"):
        ps.Residual(ps.SkipMap.truncation(2, 2), ps.Affine(ps.Free(2, 3)))
    with pytest.raises(InvalidInputError, match="has no outputs or no inputs"):
        ps.SkipMap.of_matrix(torch.zeros(0, 3))
    with pytest.raises(InvalidInputError, match="has no singular values"):
        smallest_singular_value(torch.zeros(0, 3))


def test_data_that_does_not_fit_is_refused(ps):
    from skiplens.base.errors import InvalidInputError

    system = ps.Composition((ps.Affine(ps.Free(2, 3)),))
    with pytest.raises(InvalidInputError, match="Transpose a batch"):
        system(torch.zeros(6), torch.zeros(4, 3))
    with pytest.raises(InvalidInputError, match="a vector of 6 numbers was wanted"):
        system(torch.zeros(5), torch.zeros(3, 4))
    facts_only = ps.Residual(ps.SkipMap(2, 3, 1.0, 1.0), ps.Affine(ps.Free(2, 3)))
    with pytest.raises(InvalidInputError, match="cannot be evaluated"):
        facts_only(torch.zeros(6), torch.zeros(3, 4))


@pytest.mark.parametrize("kind", ["Free", "WeightNormalised", "EntryNormalised"])
def test_smallest_derivative_is_that_of_the_matrix(ps, kind, generator):
    P = getattr(ps, kind)(2, 3) if kind == "Free" else getattr(ps, kind)(2, 3, 0.3, 0.7)
    weights = torch.randn(6, generator=generator)
    expected = smallest_singular_value(P.derivative(weights))
    assert P.smallest_derivative(weights) == pytest.approx(expected, rel=1e-12)
    whole = ps.Convolution(P, 3, (1, 1), (1, 1))
    assert whole.smallest_derivative(weights) == pytest.approx(smallest_singular_value(whole.derivative(weights)))
    shared = ps.Convolution(ps.Free(2, 3), 3, (2, 2), (1, 1))
    assert shared.smallest_derivative(weights) == smallest_gram_eigenvalue(shared.derivative(weights)) == 0


def test_rows_below_one_do_not_bound_the_matrix(ps):
    """Erratum E7: 16 long parallel rows have norms below 1 and a matrix norm near 4, the supremum."""
    P = ps.WeightNormalised(16, 3)
    matrix = P.matrix(torch.full((48,), 2500.0))
    assert float(matrix.norm(dim=1).max()) < 1
    assert 3.999999 < largest_singular_value(matrix) < P.spectral().size == 4


@pytest.mark.parametrize("size", [1.0, 10.0, 100.0, 1000.0])
def test_batch_norm_behind_a_free_map_has_unbounded_gain_on_few_samples(ps, size):
    """Erratum E9: with N = d the covariance is singular; along its null direction the gain is |A|/sqrt(ε)."""
    X = sines(3, 3)
    _, _, directions = torch.linalg.svd((X - X.mean(1, keepdim=True)).T)
    layers = ps.Composition((ps.Affine(ps.Free(1, 3)), ps.BatchNorm(1, 0.1)))
    null, other = (largest_singular_value(layers.input_jacobian(size * directions[row], X)) for row in (2, 0))
    assert null == pytest.approx(size / math.sqrt(0.1), rel=1e-6)
    assert other < 1.5


def test_batch_norm_behind_a_free_map_has_bounded_gain_on_many_samples(ps, generator):
    X = torch.randn(3, 9, generator=generator)
    smallest = torch.linalg.eigvalsh(torch.cov(X, correction=0))[0]
    layers = ps.Composition((ps.Affine(ps.Free(2, 3)), ps.BatchNorm(2, 1e-3)))
    for size in (0.1, 1.0, 100.0):
        weights = size * torch.randn(6, generator=generator)
        assert largest_singular_value(layers.input_jacobian(weights, X)) <= math.sqrt(2 / smallest)


def test_a_derivative_that_is_not_lipschitz(ps):
    """Erratum E8: the slope of (2/3) |x|^(3/2) is continuous, but its quotients at 0 are 10, 100, 1000."""
    phi = ps.Nonlinearity("power", lambda x: 2 / 3 * x.abs() ** 1.5)
    steps = torch.tensor([1e-2, 1e-4, 1e-6])
    assert_close(phi.derivative(steps) / steps, torch.tensor([10.0, 100.0, 1000.0]))
    assert not phi.is_smooth
