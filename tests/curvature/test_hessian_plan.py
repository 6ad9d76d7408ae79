import pytest
import torch

from skiplens.curvature.operator import loss_operator
from skiplens.curvature.products import HessianCurvature, graph_bytes_per_sample
from tests.budget_calls import least_memory
from tests.curvature.cases import MODELS, SAMPLES, classes, in_batches, multilayer
from tests.networks import noise
from tests.tolerances import assert_close


def test_every_budget_gives_the_same_products():
    model, inputs = MODELS["convolutional"]()
    model.eval()
    reference = loss_operator(model, (inputs, classes()), loss="cross_entropy")
    vectors = noise(reference.size, 3)
    expected, plans = reference @ vectors, set()
    least = least_memory(lambda m: loss_operator(model, (inputs, classes()), loss="cross_entropy", memory=m))
    for budget in [*range(least, least + 200_000, 20_000), 10**9]:
        operator = loss_operator(model, in_batches(inputs, classes(), 4), loss="cross_entropy", memory=budget)
        plans.add(operator.plan)
        for _ in range(2):
            assert_close(operator @ vectors, expected, 1e-10)
    assert len({plan.piece for plan in plans}) > 1
    assert {plan.kept for plan in plans} >= {0, 3}


def test_graphs_are_kept_in_part_where_not_all_fit():
    model, inputs = multilayer()
    whole = loss_operator(model, in_batches(inputs, classes(), 1), loss="cross_entropy")
    assert whole.plan.kept == SAMPLES
    batches = in_batches(inputs, classes(), 1)
    least = least_memory(lambda m: loss_operator(model, batches, loss="cross_entropy", memory=m))
    budgets = range(least, least + 8_000, 400)
    kept = [loss_operator(model, batches, loss="cross_entropy", memory=budget).plan.kept for budget in budgets]
    assert kept == sorted(kept)
    assert kept[0] == 0
    assert kept[-1] == SAMPLES
    assert len(set(kept)) > 3


def test_batches_are_never_cut_where_samples_depend_on_each_other():
    model, inputs = MODELS["convolutional"]()
    whole = loss_operator(model.train(), (inputs, classes()), loss="cross_entropy")
    data = inputs, classes()
    least = least_memory(lambda m: loss_operator(model, data, loss="cross_entropy", memory=m))
    cramped = loss_operator(model, data, loss="cross_entropy", memory=least)
    assert cramped._problem.piece_sizes(cramped.plan.piece) == [SAMPLES]
    vector = noise(whole.size)
    assert_close(cramped @ vector, whole @ vector, 1e-10)
    model.eval()
    least = least_memory(lambda m: loss_operator(model, data, loss="cross_entropy", memory=m))
    cut = loss_operator(model, data, loss="cross_entropy", memory=least)
    assert cut._problem.piece_sizes(cut.plan.piece) == [1] * SAMPLES


def test_pieces_are_of_nearly_equal_length():
    model, inputs = multilayer()
    problem = loss_operator(model, (inputs, classes()), loss="cross_entropy")._problem
    assert problem.piece_sizes(4) == [4, 3, 3]
    assert [piece.samples for piece in problem.pieces(4)] == [4, 3, 3]
    assert torch.equal(torch.cat([piece.inputs for piece in problem.pieces(4)]), inputs)


def test_graph_bytes_of_a_known_graph():
    """A linear layer with squared error keeps its input, its error and the gradients that come back, all counted."""
    model = torch.nn.Linear(50, 7, bias=False)
    operator = loss_operator(model, (noise(20, 50), noise(20, 7)), loss="mse")
    goal = operator._problem.objective
    first = goal.prepared(next(iter(operator._problem.batches)))
    per_sample = graph_bytes_per_sample(HessianCurvature, goal, first)
    assert 8 * (50 + 7) <= per_sample <= 8 * (50 + 10 * 7)


def test_several_vectors_at_once_and_one_by_one_agree():
    model, inputs = MODELS["convolutional"]()
    model.eval()
    for kind in ("hessian", "gauss_newton", "empirical_fisher"):
        operator = loss_operator(model, in_batches(inputs, classes(), 4), loss="cross_entropy", kind=kind)
        vectors = noise(operator.size, 5)
        together = operator @ vectors
        operator._probes = 1
        assert_close(together, operator @ vectors, 1e-10)
        operator._probes = 2
        assert_close(together, operator @ vectors, 1e-10)


def test_vectors_go_one_by_one_where_an_operation_cannot_take_several():
    class Tripled(torch.autograd.Function):
        """Its backward looks at values, which is impossible for several vectors at once."""

        @staticmethod
        def forward(ctx, x):
            return 3 * x

        @staticmethod
        def backward(ctx, gradient):
            return 3 * gradient if bool((gradient == gradient).all()) else gradient

    model, inputs = multilayer()
    plain = loss_operator(model, (inputs, classes()), loss=lambda z, y: torch.nn.functional.cross_entropy(3 * z, y))
    odd = loss_operator(
        model, (inputs, classes()), loss=lambda z, y: torch.nn.functional.cross_entropy(Tripled.apply(z), y)
    )
    vectors = noise(plain.size, 4)
    assert plain.plan.probes > 1
    odd._probes = 3  # so that there are vectors left when it turns out
    assert_close(odd @ vectors, plain @ vectors, 1e-10)
    assert odd._probes == 1
    assert plain._probes > 1


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["hessian", "gauss_newton", "fisher", "empirical_fisher"])
@pytest.mark.parametrize("name", MODELS)
def test_cuda_agrees_with_the_cpu(name, kind):
    model, inputs = MODELS[name]()
    model.eval()
    operator = loss_operator(model, in_batches(inputs, classes(), 4), loss="cross_entropy", kind=kind)
    vectors = noise(operator.size, 3)
    expected = operator @ vectors
    on_gpu = loss_operator(model.cuda(), in_batches(inputs, classes(), 4), loss="cross_entropy", kind=kind)
    assert on_gpu.device.type == "cuda"
    assert_close((on_gpu @ vectors.cuda()).cpu(), expected, 1e-10)
    single = loss_operator(model.float(), in_batches(inputs, classes(), 4), loss="cross_entropy", kind=kind)
    assert_close((single @ vectors.cuda()).cpu(), expected, 1e-4)
