"""Lower bounds of λ(DF) against its true value, the reference tables and the paper's false forms."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skiplens.linalg.singular_values import smallest_gram_eigenvalue, smallest_singular_value
from tests.jacobians.systems.reference import (
    LABELS_A,
    cosines,
    data_a,
    network_a,
    network_r,
    numbers,
    residual_network,
    sines,
    start_a,
)
from tests.tolerances import assert_close

TABLE = 1e-11  # the tables have 13 or 14 digits


@dataclass(frozen=True)
class GradientDomination:
    """|∇ℓ|²/ℓ, its lower bound λ(DF) |∇γ|²/ℓ, and μ λ(DF) with the cost's μ on the outputs' ball (theorem 2.4)."""

    ratio: float
    from_outputs: float
    certified: float


def gradient_domination(loss, parameters):
    value, gradient = loss.with_gradient(parameters)
    outputs = loss.system(parameters, loss.data)
    strength = smallest_gram_eigenvalue(loss.system.parameter_derivative(parameters, loss.data))
    from_outputs = strength * float(loss.cost.gradient(outputs).square().sum() / value)
    certified = loss.cost.domination(float(outputs.norm())) * strength
    return GradientDomination(float(gradient.square().sum() / value), from_outputs, certified)


def costs():
    from skiplens.jacobians.systems.costs import CrossEntropy, SquareCost

    return {"cross-entropy": CrossEntropy(LABELS_A, 3), "square": SquareCost(cosines(3, 4))}


@pytest.fixture
def point():
    from skiplens.papers.macdonald2023_regularity.guaranteed import regularity

    return regularity(network_a(), start_a(), data_a())


def test_outputs_of_the_reference_network():
    expected = (
        "-0.092484883935844 -1.7535967713883 -0.22681943742205 1.0063371769962 -2.2920527243751 0.021073522560715 "
        "-1.3928900302111 -0.38289404805828 1.2397926495602 -0.97367794131244 0.36140309742172 0.25114981551132"
    )
    assert_close(network_a()(start_a(), data_a()).flatten(), numbers(expected), relative=TABLE)
    expected = "2.4036097116119 2.0686867518737 1.2895455330759 1.0439322055676"
    assert_close(torch.linalg.svdvals(data_a()), numbers(expected), relative=TABLE)


def test_derivative_is_assembled_from_the_layers():
    """Proposition 4.2: D_l F = Jf_L ⋯ Jf_{l+1} Df_l."""
    system, expected = network_a(), torch.zeros(data_a().numel(), 0)
    parts = zip(system.layers, system.split(start_a()), system.states(start_a(), data_a())[:-1], strict=True)
    for layer, own, Z in parts:
        inner = layer.input_jacobian(own, Z) @ expected
        expected = torch.cat([inner, layer.parameter_derivative(own, Z)], dim=1)
    assert_close(system.parameter_derivative(start_a(), data_a()), expected)


def test_layers_of_the_reference_network(point):
    first, second, third = point.layers
    blocks = [second.branch_gain, second.smallest_gain, second.largest_gain]
    blocks += [third.branch_gain, third.smallest_gain, third.largest_gain]
    expected = "0.31817220799685 0.77103649003717 1.1157372888397 0.3044745357944 0.88118506176124 1.2019490367479"
    assert_close(torch.tensor(blocks), numbers(expected), relative=TABLE)
    derivatives = torch.tensor([layer.parameter_derivative for layer in point.layers])
    assert_close(derivatives, numbers("0.070539081170906 0.00022720460996026 0.00091193403106952"), relative=TABLE)
    gains = torch.tensor([second.input_jacobian, third.input_jacobian])
    assert_close(gains, numbers("0.59449726896884 0.77648711307116"), relative=TABLE)
    assert first.branch_gain is None


def test_bounds_of_the_reference_network(point):
    assert point.from_layers == pytest.approx(0.033650568613838, rel=TABLE)
    assert point.true == pytest.approx(0.096134421766681, rel=TABLE)
    assert point.largest == pytest.approx(1.5556068597643, rel=TABLE)
    by_hand = 0.1782655798884**2 * (1 - 0.31817220799685) ** 2 * (1 - 0.3044745357944) ** 2
    assert point.from_skips == pytest.approx(by_hand, rel=TABLE)


def test_bounds_lie_below_the_truth_everywhere(generator):
    from skiplens.papers.macdonald2023_regularity.guaranteed import regularity, skip_bound

    for _ in range(40):
        scale = 10 ** (3 * torch.rand((), generator=generator) - 1.5)
        found = regularity(network_a(), scale * torch.randn(94, generator=generator), data_a())
        slack = 1e-12 * found.largest**2  # λ is a difference of numbers of this size
        assert 0 <= found.from_skips <= found.from_layers + slack <= found.true + 2 * slack
        for block in found.layers[1:]:
            assert skip_bound(block.branch_gain) <= block.smallest_gain * (1 + 1e-12)
            assert block.branch_gain < 0.9


def random_system(widths, shape, kind, rule, seed):
    """A network of the theorem's class with parameters and data; `shape` is more features, samples, hidden units."""
    from skiplens.jacobians import systems as ps

    widths = tuple(sorted(widths, reverse=True))
    more, samples, hidden = shape
    margin, nonlinearity, scale = rule
    first = ps.Affine(getattr(ps, kind)(widths[0], widths[0] + more))
    system = residual_network(first, margin, widths=widths, hidden=hidden, nonlinearity=nonlinearity)
    generator = torch.Generator().manual_seed(seed)
    parameters = 10**scale * torch.randn(system.parameters, generator=generator)
    return system, parameters, torch.randn(first.inputs, samples, generator=generator)


@settings(max_examples=25)
@given(
    widths=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    shape=st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(1, 5)),
    kind=st.sampled_from(["EntryNormalised", "Free"]),
    rule=st.tuples(st.floats(0.05, 0.9), st.sampled_from(["tanh", "sin", "sigmoid", "softsign"]), st.floats(-2, 2)),
    seed=st.integers(0, 2**31),
)
def test_bounds_lie_below_the_truth_for_any_network(widths, shape, kind, rule, seed):
    from skiplens.jacobians.systems.costs import SquareCost
    from skiplens.jacobians.systems.smoothness import TrainingLoss
    from skiplens.papers.macdonald2023_regularity.guaranteed import regularity

    system, parameters, X = random_system(widths, shape, kind, rule, seed)
    found = regularity(system, parameters, X)
    # each λ carries rounding errors of the squared norms that its term is a product of
    slack = 1e-12 * sum_of_norms(found)
    assert 0 <= found.from_skips <= found.from_layers + slack
    assert found.from_layers <= found.true + slack
    cost = SquareCost(torch.zeros(system.outputs, X.shape[1]))
    ratio = gradient_domination(TrainingLoss(system, X, cost), parameters)
    assert ratio.certified <= ratio.from_outputs + slack
    assert ratio.from_outputs <= ratio.ratio + slack


def sum_of_norms(found):
    """An upper bound of |DF|²: what the layers could add up to."""
    behind = 1.0
    for layer in found.layers[1:]:
        behind *= max(1.0, layer.largest_gain**2)
    return found.largest**2 + behind


@pytest.mark.parametrize(
    ("cost", "loss", "gradient", "bound", "top", "bottom"),
    [
        ("cross-entropy", 0.77742994474628, 0.14162684350673, 0.011934154630235, 0.20821131916822, -0.25402965198274),
        ("square", 3.0429857886292, 1.0084682026555, 0.14626783961705, 0.83871920028666, -0.47474761778455),
    ],
)
def test_losses_of_the_reference_network(cost, loss, gradient, bound, top, bottom):
    from skiplens.jacobians.systems.smoothness import TrainingLoss

    training = TrainingLoss(network_a(), data_a(), costs()[cost])
    value, slope = training.with_gradient(start_a())
    assert float(value) == pytest.approx(loss, rel=TABLE)
    assert float(slope.square().sum()) == pytest.approx(gradient, rel=TABLE)
    eigenvalues = torch.linalg.eigvalsh(training.hessian(start_a()))
    assert_close(eigenvalues[[-1, 0]], torch.tensor([top, bottom]), relative=1e-10)
    found = gradient_domination(training, start_a())
    assert found.ratio == pytest.approx(gradient / loss, rel=TABLE)
    assert found.from_outputs == pytest.approx(bound / loss, rel=TABLE)
    assert 0 < found.certified <= found.from_outputs * (1 + 1e-12) <= found.ratio


@pytest.mark.parametrize("cost", ["cross-entropy", "square"])
def test_gradient_domination_along_training(cost):
    from skiplens.jacobians.systems.smoothness import TrainingLoss

    loss, parameters = TrainingLoss(network_a(), data_a(), costs()[cost]), start_a(0.5)
    for _ in range(10):
        found = gradient_domination(loss, parameters)
        assert 0 < found.certified <= found.from_outputs * (1 + 1e-12) <= found.ratio * (1 + 1e-12)
        parameters = parameters - 0.5 * loss.with_gradient(parameters)[1]


def test_the_repaired_network_is_regular_for_all_parameters(generator):
    from skiplens.papers.macdonald2023_regularity.guaranteed import uniform_bound

    system = network_r()
    bound = uniform_bound(data_a(), 0.5, 2)
    assert bound == pytest.approx(0.0681121531138273, rel=1e-12)
    for _ in range(20):
        point = 10 ** (3 * torch.rand((), generator=generator) - 1.5) * torch.randn(94, generator=generator)
        assert smallest_gram_eigenvalue(system.parameter_derivative(point, data_a())) >= bound


def test_lemma_b5_as_printed_is_false():
    """P(w) = (0, w), X = (1, 0)ᵀ: σ(X) σ(DP) = 1 but σ(D(P X)) = 0; with λ the left side is 0 too."""
    from skiplens.jacobians import systems as ps
    from skiplens.jacobians.systems.parameterisation import Suprema
    from skiplens.papers.macdonald2023_regularity.guaranteed import regularity

    @dataclass(frozen=True)
    class Second(ps.Parameterisation):
        outputs: int = 1
        inputs: int = 2
        parameters: int = 1

        def matrix(self, weights):
            return torch.stack([torch.zeros(1), weights], dim=1)

        def derivative(self, weights):
            return torch.tensor([[0.0], [1.0]])

        def spectral(self):
            return Suprema(float("inf"), 1.0, 0.0)

        frobenius = spectral

        def smallest_derivative(self, weights):
            return 0.0

    X, layer = torch.tensor([[1.0], [0.0]]), ps.Affine(Second())
    derivative = layer.parameter_derivative(torch.ones(1), X)
    assert smallest_singular_value(X) * smallest_singular_value(Second().derivative(torch.ones(1))) == 1
    assert smallest_singular_value(derivative) == 0
    assert smallest_gram_eigenvalue(derivative) == smallest_gram_eigenvalue(Second().derivative(torch.ones(1))) == 0
    assert regularity(ps.Composition((layer,)), torch.ones(1), X).from_skips == 0


def test_lemma_b5_as_printed_is_false_for_a_circular_convolution():
    """Three taps on (1, −1, 1, −1): σ(X) = σ(DP) = 2, but the layer's derivative has singular values 2√3, 0, 0."""
    X = torch.tensor([1.0, -1.0, 1.0, -1.0])
    taps = [torch.eye(4).roll(shift, 1) for shift in range(3)]
    DP = torch.stack([tap.flatten() for tap in taps], 1)
    derivative = torch.stack([tap @ X for tap in taps], 1)
    assert_close(torch.linalg.svdvals(DP), torch.full((3,), 2.0))
    assert float(X.norm()) == 2
    values = torch.linalg.svdvals(derivative)
    assert float(values[0]) == pytest.approx(3.4641016151, rel=1e-10)
    assert float(values[1]) < 1e-14


def test_a_head_without_skip_or_a_widening_layer_has_no_bound_from_skips():
    from skiplens.jacobians import systems as ps
    from skiplens.papers.macdonald2023_regularity.guaranteed import regularity

    head = ps.Affine(ps.Free(2, 3))
    behind = ps.Composition((*network_a().layers, head))
    assert regularity(behind, torch.cat([start_a(), torch.ones(6)]), data_a()).from_skips == 0
    wider = network_a(widths=(5, 4, 6))
    found = regularity(wider, sines(1, wider.parameters)[0], data_a())
    assert found.from_skips == 0
    assert found.layers[-1].input_jacobian == 0
    assert found.layers[-1].smallest_gain > 0
