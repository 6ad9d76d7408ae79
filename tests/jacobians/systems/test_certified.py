"""Certificates against the reference tables, and never exceeded: at random, by an adversary, and for each constant."""

import math

import pytest
import torch

from tests.jacobians.systems.reference import (
    LABELS_A,
    cosines,
    data_a,
    network_a,
    network_r,
    numbers,
    start_a,
)
from tests.tolerances import assert_close

TABLE = 1e-12  # the tables have 14 digits


@pytest.fixture
def cross_entropy():
    from skiplens.jacobians.systems.costs import CrossEntropy

    return CrossEntropy(LABELS_A, 3)


@pytest.fixture
def square():
    from skiplens.jacobians.systems.costs import SquareCost

    return SquareCost(cosines(3, 4))


def loss_of(system, cost, data=None):
    from skiplens.jacobians.systems.smoothness import TrainingLoss

    return TrainingLoss(system, data_a() if data is None else data, cost)


def bound_a():
    from skiplens.jacobians.systems.layer import DataBound

    return DataBound.of_data(data_a())


def row(certificate):
    c = certificate
    return torch.tensor([c.size, c.slope, c.gain, c.curvature, c.mixed, c.bend])


def test_certificates_of_the_normalised_network():
    system = network_a()
    first, second, third = system.certificates(bound_a())
    table = {
        first: "13.165112584883 2.4036097116119 5.4772255750517 2.0638597273125 1 0",
        second: "16.765112584883 6.1917152993304 1.9 35.366275544754 5.0306956401582 0.69282032302755",
        third: "20.365112584883 7.8253736330428 1.9 55.513602165941 6.2791420449414 0.69282032302755",
        system.certificate(bound_a()): "20.365112584883 16.58086644088 19.772784325936 143.43108713409 "
        "129.54562514914 114.52319939645",
    }
    for certificate, expected in table.items():
        assert_close(row(certificate), numbers(expected), relative=TABLE)


@pytest.mark.parametrize(
    ("cost", "joint", "per_sample", "literal"),
    [
        ("cross_entropy", 135.78673583676, 162.51932180871, 201.6839763706),
        ("square", 885.46458550008, 1098.5849120652, 1416.1280656701),
    ],
)
def test_smoothness_of_the_normalised_network(cost, joint, per_sample, literal, request):
    from skiplens.jacobians.systems.smoothness import certified_smoothness

    smoothness = certified_smoothness(loss_of(network_a(), request.getfixturevalue(cost)))
    assert smoothness.joint == pytest.approx(joint, rel=TABLE)
    assert smoothness.per_sample == pytest.approx(per_sample, rel=TABLE)
    assert smoothness.literal == pytest.approx(literal, rel=TABLE)
    assert (smoothness.constant, smoothness.mode) == (smoothness.joint, "joint")
    assert smoothness.best_step == pytest.approx(1 / joint, rel=TABLE)


def test_smoothness_of_single_samples(cross_entropy):
    from skiplens.jacobians.systems.smoothness import certified_smoothness

    expected = (110.54672443024, 147.38880597124, 199.70145739939, 192.44029943397)
    for i, value in enumerate(expected):
        loss = loss_of(network_a(), cross_entropy.of_sample(i), data_a()[:, i : i + 1])
        assert certified_smoothness(loss).joint == pytest.approx(value, rel=TABLE)


def test_smoothness_of_the_repaired_network(cross_entropy, square):
    from skiplens.jacobians.systems.smoothness import certified_smoothness

    system = network_r()
    total = system.certificate(bound_a())
    assert total.slope == pytest.approx(6.053397004159595, rel=TABLE)
    assert total.curvature == pytest.approx(22.449130691351805, rel=TABLE)
    table = {
        1: "1.5 1.5 3.028518826437253 1.1384516782247176 0.769800358919501",
        2: "1.5275252316519468 1.5 2.604857246381016 1.0598707965528988 0.769800358919501",
    }
    for block, expected in table.items():
        assert_close(row(system.certificates(bound_a())[block])[1:], numbers(expected), relative=TABLE)
    assert certified_smoothness(loss_of(system, cross_entropy)).joint == pytest.approx(20.454384454843954, rel=TABLE)
    loss = loss_of(system, square)
    started = float(loss(start_a()))
    assert certified_smoothness(loss, started).joint == pytest.approx(50.0553310067958, rel=TABLE)
    assert math.isinf(certified_smoothness(loss).constant)  # outputs are unbounded, so a sublevel is needed


def test_mixed_bound_of_the_repaired_network_on_fixed_inputs():
    from dataclasses import replace

    from skiplens.jacobians.systems.layer import composed

    first, *blocks = network_r().certificates(bound_a())
    assert composed([replace(first, gain=0.0), *blocks]).mixed == pytest.approx(2.25, rel=TABLE)


def test_smoothness_scales_like_one_over_epsilon():
    from skiplens.jacobians.systems.affine import Affine
    from skiplens.jacobians.systems.costs import SquareCost
    from skiplens.jacobians.systems.elementwise import NONLINEARITIES, Elementwise
    from skiplens.jacobians.systems.layer import Composition
    from skiplens.jacobians.systems.parameterisation import WeightNormalised
    from skiplens.jacobians.systems.smoothness import certified_smoothness

    def network(epsilon):
        first = Affine(WeightNormalised(5, 6, epsilon))
        return Composition((first, Elementwise(NONLINEARITIES["tanh"], 5), Affine(WeightNormalised(3, 5, epsilon))))

    one, small = (certified_smoothness(loss_of(network(e), SquareCost(cosines(3, 4)))).constant for e in (1.0, 0.04))
    assert small == pytest.approx(one / 0.04)


def test_a_coupling_layer_leaves_no_per_sample_mode(square):
    from skiplens.jacobians.systems.affine import Affine
    from skiplens.jacobians.systems.layer import Composition
    from skiplens.jacobians.systems.norms import BatchNorm
    from skiplens.jacobians.systems.parameterisation import EntryNormalised
    from skiplens.jacobians.systems.smoothness import certified_smoothness

    system = Composition((Affine(EntryNormalised(3, 6)), BatchNorm(3, 0.1)))
    smoothness = certified_smoothness(loss_of(system, square))
    assert math.isinf(smoothness.per_sample) and math.isfinite(smoothness.joint)


def normalised_systems():
    """Small networks with every kind of certified layer."""
    from skiplens.jacobians import systems as ps

    kernel = ps.Convolution(ps.WeightNormalised(2, 4), 1, (2, 3), (2, 2), padding=(0, 1))
    return {
        "residual": network_a(),
        "repaired": network_r(),
        "batch norm": ps.Composition(
            (ps.Affine(ps.EntryNormalised(3, 6, 0.5)), ps.BatchNorm(3, 0.2), ps.Affine(ps.WeightNormalised(3, 3, 0.5)))
        ),
        "convolution": ps.Composition(
            (
                ps.Affine(kernel),
                ps.Elementwise(ps.NONLINEARITIES["sigmoid"], 8),
                ps.Affine(ps.EntryNormalised(3, 8, 2.0, 0.3)),
            )
        ),
    }


SYSTEMS = ["residual", "repaired", "batch norm", "convolution"]


def random_point(system, generator):
    scale = 10 ** (3 * torch.rand((), generator=generator) - 1.5)
    return scale * torch.randn(system.parameters, generator=generator)


def exceeded(name, cost, trials, generator):
    """The largest ratio of a sampled difference quotient of the gradient to the certified constant."""
    from skiplens.jacobians.systems.smoothness import certified_smoothness

    system = normalised_systems()[name]
    loss = loss_of(system, cost)
    constant, worst = certified_smoothness(loss).constant, 0.0
    for _ in range(trials):
        point = random_point(system, generator)
        step = torch.randn(system.parameters, generator=generator) * 10 ** (-3 * torch.rand((), generator=generator))
        change = loss.with_gradient(point + step)[1] - loss.with_gradient(point)[1]
        worst = max(worst, float(change.norm() / step.norm()) / constant)
    return worst


@pytest.mark.parametrize("name", SYSTEMS)
def test_gradients_never_change_faster_than_certified(name, cross_entropy, generator):
    assert 0 < exceeded(name, cross_entropy, 40, generator) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_gradients_never_change_faster_than_certified_in_many_trials(name, cross_entropy, generator):
    assert 0 < exceeded(name, cross_entropy, 2500, generator) <= 1  # 10⁴ trials over the four networks


@pytest.mark.parametrize("name", ["residual", "batch norm", "convolution"])
def test_square_gradients_never_change_faster_than_certified(name, square, generator):
    assert 0 < exceeded(name, square, 40, generator) <= 1


@pytest.mark.parametrize("name", SYSTEMS)
def test_an_adversary_does_not_exceed_the_certificate(name, cross_entropy, generator):
    from skiplens.jacobians.systems.smoothness import certified_smoothness, search_rough_point

    system = normalised_systems()[name]
    loss, start = loss_of(system, cross_entropy), 0.3 * torch.randn(system.parameters, generator=generator)
    found, place = search_rough_point(loss, start, steps=15)
    at_start = float(torch.linalg.matrix_norm(loss.hessian(start), 2))
    assert found > 1.1 * at_start  # the search does search
    assert found == pytest.approx(float(torch.linalg.matrix_norm(loss.hessian(place), 2)))
    assert found <= certified_smoothness(loss).constant


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cost", "reference", "certified"), [("cross_entropy", 5.352, 135.8), ("square", 52.28, 885.5)]
)
def test_a_patient_adversary_finds_what_the_theory_note_found(cost, reference, certified, request, generator):
    from skiplens.jacobians.systems.smoothness import search_rough_point

    loss = loss_of(network_a(), request.getfixturevalue(cost))
    starts = [start_a(0.3), *(torch.randn(94, generator=generator) * 0.5 for _ in range(3))]
    best = max(search_rough_point(loss, start, steps=300)[0] for start in starts)
    assert 0.5 * reference < best < certified


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_constant_bounds_what_it_says(name, generator):
    """|F|, |DF|, |JF| and the Hessian of <v, F> against the four constants they define."""
    system = normalised_systems()[name]
    total = system.certificate(bound_a())
    for _ in range(10):
        point = random_point(system, generator)
        v = torch.randn(3, 4, generator=generator)
        v /= v.norm()
        hessian = torch.func.jacrev(torch.func.jacrev(lambda w, v=v: (v * system(w, data_a())).sum()))(point)
        norm = torch.linalg.matrix_norm
        assert system(point, data_a()).norm() <= total.size
        assert norm(system.parameter_derivative(point, data_a()), 2) <= total.slope
        assert norm(system.input_jacobian(point, data_a()), 2) <= total.gain
        assert norm(hessian, 2) <= total.curvature


def test_mixed_and_data_curvature_of_a_block(generator):
    """The two constants that only compositions use, sampled on the second block of the network."""
    from skiplens.jacobians.systems.layer import DataBound

    block = network_a().layers[1]
    Z = torch.randn(5, 4, generator=generator)
    bound = block.certificate(DataBound.of_data(Z))
    for _ in range(10):
        w = random_point(block, generator)
        v = torch.randn(4, 4, generator=generator)
        v /= v.norm()
        form = lambda w, Z, v=v: (v * block(w, Z)).sum()  # noqa: E731 - one line with the form it names
        mixed = torch.func.jacrev(torch.func.jacrev(form, 0), 1)(w, Z).reshape(block.parameters, -1)
        bend = torch.func.jacrev(torch.func.jacrev(form, 1), 1)(w, Z).reshape(20, 20)
        assert torch.linalg.matrix_norm(mixed, 2) <= bound.mixed
        assert torch.linalg.matrix_norm(bend, 2) <= bound.bend


def test_how_loose_it_is_on_a_trajectory(cross_entropy, generator):
    from skiplens.jacobians.systems.smoothness import SAFETY, certified_smoothness, local_smoothness

    loss = loss_of(network_a(), cross_entropy)
    certified = certified_smoothness(loss).constant
    measured = local_smoothness(loss, start_a(), generator)
    assert measured == pytest.approx(0.25402965198274, rel=1e-11)
    assert certified > 100 * measured
    assert SAFETY / certified == pytest.approx(1.9 / 135.78673583676)
    slope = loss.with_gradient(start_a())[1]
    assert loss(start_a() - SAFETY / measured * slope) < loss(start_a() - SAFETY / certified * slope) < loss(start_a())


def test_measured_smoothness_of_many_parameters_is_the_hessian_norm(monkeypatch, cross_entropy, generator):
    from skiplens.jacobians.systems import smoothness as measured
    from skiplens.jacobians.systems.smoothness import local_smoothness

    loss = loss_of(network_a(), cross_entropy)
    monkeypatch.setattr(measured, "DENSE_PARAMETERS", 0)
    assert local_smoothness(loss, start_a(), generator) == pytest.approx(0.25402965198274, rel=1e-5)


def test_descent_constant():
    """Erratum E6: η (1 − 2 η/β), as printed, would be −5.32 and 0.18278, too optimistic."""
    from skiplens.jacobians.systems.smoothness import descent_constant

    assert descent_constant(1.0, 1.9) == pytest.approx(0.095)
    assert descent_constant(10.0, 0.19) == pytest.approx(0.0095)


def test_unbounded_layers_are_named(square):
    from skiplens.base.errors import InvalidInputError
    from skiplens.jacobians import systems as ps
    from skiplens.jacobians.systems.smoothness import certified_smoothness

    def message(*layers):
        with pytest.raises(InvalidInputError) as caught:
            certified_smoothness(loss_of(ps.Composition(layers), square)).finite()
        return str(caught.value)

    first, last = ps.Affine(ps.EntryNormalised(3, 6), name="first"), ps.Affine(ps.Free(3, 3), name="head")
    assert "head: its matrix is not normalised" in message(first, last)
    relu = ps.Elementwise(ps.NONLINEARITIES["relu"], 3, name="kink")
    assert "kink: relu has a kink" in message(first, relu)
    assert "norm.scale: its scale and shift" in message(first, ps.BatchNorm(3), ps.ScaleShift(3, name="norm.scale"))
    assert "bn: its epsilon is 0" in message(first, ps.BatchNorm(3, 0.0, name="bn"))
    assert "ln: its epsilon is 0" in message(first, ps.SampleNorm(3, epsilon=0.0, name="ln"))
    assert "first: its normalisation has epsilon 0" in message(ps.Affine(ps.WeightNormalised(3, 6, 0.0), name="first"))
    biased = ps.Affine(ps.WeightNormalised(3, 6), True, name="biased")
    assert "biased: its bias is not bounded" in message(biased)
    steep = ps.Nonlinearity("cube", lambda x: x**3, slope=math.inf, curvature=1.0)
    assert "steep: the slope of cube is unbounded" in message(first, ps.Elementwise(steep, 3, name="steep"))


def test_targets_that_do_not_fit_are_refused(square):
    from skiplens.base.errors import InvalidInputError

    with pytest.raises(InvalidInputError, match="3 columns, the cost 4 targets"):
        loss_of(network_a(), square, data_a()[:, :3])
