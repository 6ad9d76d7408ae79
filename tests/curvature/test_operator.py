import copy
import inspect

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import skiplens as sl
from skiplens.base.errors import InvalidInputError
from skiplens.curvature import loss_operator
from tests.budget_calls import least_memory
from tests.curvature.cases import CLASSES, MODELS, SAMPLES, classes, in_batches, multilayer
from tests.curvature.dense import FlatLoss, cross_entropy, squared_error
from tests.hugging_face import bert, built, gpt2, vit
from tests.networks import noise
from tests.tolerances import RELATIVE, assert_close

# torch.func, which the oracle uses, remarks on its own inner workings at its first call.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

# Second derivatives add up a few hundred roundings of intermediate values larger than the result.
TOLERANCE = 100 * RELATIVE[torch.float64]
DIFFERENCES = 1e-8
"""For central differences with steps of 1e-5: step² and rounding / step, with room for derivatives above one."""


@pytest.fixture(params=MODELS)
def case(request):
    model, inputs = MODELS[request.param]()
    return model.eval(), inputs, classes()


@pytest.mark.parametrize("size", [SAMPLES, 4, 1])
def test_hessian_gradient_and_loss_over_batches_with_a_short_last_one(case, size):
    model, inputs, targets = case
    oracle = FlatLoss(model, inputs, cross_entropy(targets))
    operator = loss_operator(model, in_batches(inputs, targets, size), loss="cross_entropy")
    assert_close(operator.dense(), oracle.hessian(), TOLERANCE)
    assert_close(operator.gradient, oracle.gradient(), TOLERANCE)
    assert operator.loss == pytest.approx(oracle(oracle.point).item(), rel=1e-12)
    assert operator.samples == SAMPLES
    assert operator.size == len(oracle.point)


@pytest.mark.parametrize("size", [SAMPLES, 3])
def test_gauss_newton_and_fisher_of_cross_entropy(case, size):
    model, inputs, targets = case
    expected = FlatLoss(model, inputs, cross_entropy(targets)).gauss_newton()
    for kind in ("gauss_newton", "fisher"):
        operator = loss_operator(model, in_batches(inputs, targets, size), loss="cross_entropy", kind=kind)
        assert_close(operator.dense(), expected, TOLERANCE)
        assert operator.kind == kind


def test_fisher_is_the_expectation_over_the_models_own_labels():
    """F = Σ p(y|x) g gᵀ with the gradient g of -log p(y|x), by its definition and without the loss's Hessian."""
    model, inputs = multilayer()
    expected = 0
    for row in inputs:
        for label in range(CLASSES):
            loss = FlatLoss(model, row[None], cross_entropy(torch.tensor([label])))
            gradient, probability = loss.gradient(), model(row).softmax(0)[label].item()
            expected = expected + probability * torch.outer(gradient, gradient) / len(inputs)
    actual = loss_operator(model, (inputs, classes()), loss="cross_entropy", kind="fisher").dense()
    assert_close(actual, expected, TOLERANCE)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("size", [SAMPLES, 3])
def test_empirical_fisher_adds_up_outer_products_of_gradients(reduction, size):
    model, inputs = multilayer()
    targets = classes()
    pairs = zip(inputs, targets, strict=True)
    rows = [FlatLoss(model, x[None], cross_entropy(y[None])).gradient() for x, y in pairs]
    G = torch.stack(rows)
    loss = nn.CrossEntropyLoss(reduction=reduction)
    actual = loss_operator(model, in_batches(inputs, targets, size), loss=loss, kind="empirical_fisher").dense()
    assert_close(actual, G.T @ G / (SAMPLES if reduction == "mean" else 1), TOLERANCE)


@pytest.mark.parametrize("kind", ["hessian", "gauss_newton"])
def test_squared_error_of_a_network_and_a_sum(kind):
    model, inputs = multilayer()
    targets = noise(SAMPLES, CLASSES, seed=3)
    oracle = FlatLoss(model, inputs, squared_error(targets))
    expected = oracle.hessian() if kind == "hessian" else oracle.gauss_newton()
    batches = in_batches(inputs, targets, 4)
    assert_close(loss_operator(model, batches, loss="mse", kind=kind).dense(), expected, TOLERANCE)
    summed = loss_operator(model, batches, loss=nn.MSELoss(reduction="sum"), kind=kind)
    assert_close(summed.dense(), expected * targets.numel(), TOLERANCE)
    assert summed.loss == pytest.approx(F.mse_loss(model(inputs), targets, reduction="sum").item(), rel=1e-12)


def test_batch_norm_in_training_mode_is_measured_batch_by_batch_and_left_alone():
    model, inputs = MODELS["convolutional"]()
    model.train()
    targets, before = classes(), copy.deepcopy(model.state_dict())
    batches = in_batches(inputs, targets, 5)
    expected = sum(FlatLoss(model, x, cross_entropy(y)).hessian_by_differences() for x, y in batches) / 2
    operator = loss_operator(model, batches, loss="cross_entropy")
    assert_close(operator.dense(), expected, DIFFERENCES)
    assert_close(operator.dense(), expected, DIFFERENCES)  # the second product works on the graphs that were kept
    least = least_memory(lambda memory: loss_operator(model, batches, loss="cross_entropy", memory=memory))
    rebuilt = loss_operator(model, batches, loss="cross_entropy", memory=least)
    assert rebuilt.plan.kept == 0
    assert_close(rebuilt.dense(), operator.dense(), TOLERANCE)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


@pytest.mark.parametrize("kind", ["hessian", "gauss_newton", "empirical_fisher"])
def test_symmetric_linear_and_positive_where_it_must_be(case, kind):
    model, inputs, targets = case
    operator = loss_operator(model, in_batches(inputs, targets, 4), loss="cross_entropy", kind=kind)
    u, v = noise(operator.size, seed=1), noise(operator.size, seed=2)
    left, right = operator @ u, operator @ v
    assert (v @ left).item() == pytest.approx((u @ right).item(), rel=1e-9)
    assert_close(operator @ (2 * u - 3 * v), 2 * left - 3 * right, TOLERANCE)
    if kind != "hessian":
        values = torch.linalg.eigvalsh(operator.dense())
        assert values[0] >= -1e-13 * values[-1]


def test_order_of_data_and_batch_size_do_not_matter(case):
    model, inputs, targets = case
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(0))
    one = loss_operator(model, (inputs, targets), loss="cross_entropy")
    shuffled = loss_operator(model, in_batches(inputs[order], targets[order], 3), loss="cross_entropy")
    vectors = noise(one.size, 4)
    assert_close(one @ vectors, shuffled @ vectors, TOLERANCE)


def test_chosen_and_frozen_parameters():
    model, inputs = multilayer()
    model[0].requires_grad_(False)
    targets = classes()
    trainable = loss_operator(model, (inputs, targets), loss="cross_entropy")
    assert trainable.names == ["2.weight", "2.bias", "4.weight", "4.bias"]
    names = ["4.bias", "0.weight"]
    block = loss_operator(model, (inputs, targets), loss="cross_entropy", parameters=names)
    assert block.names == names
    assert_close(block.dense(), FlatLoss(model, inputs, cross_entropy(targets), names).hessian(), TOLERANCE)
    tested = loss_operator(
        model, (inputs, targets), loss="cross_entropy", parameters=lambda name: name.startswith("2.")
    )
    assert_close(tested.dense(), trainable.dense()[: tested.size, : tested.size], TOLERANCE)


def test_a_parameter_without_influence_has_zero_rows():
    model = nn.ModuleDict({"used": nn.Linear(4, CLASSES), "idle": nn.Linear(4, 2)})
    model.forward = lambda x: model["used"](x)
    for kind in ("hessian", "gauss_newton", "empirical_fisher"):
        operator = loss_operator(model, (noise(SAMPLES, 4), classes()), loss="cross_entropy", kind=kind)
        matrix = operator.dense()
        marked = {n: torch.full_like(p, n.startswith("idle")) for n, p in model.named_parameters()}
        idle = operator.flatten(marked).bool()
        assert not matrix[idle].any()
        assert not matrix[:, idle].any()
        assert matrix[~idle].any()


def test_a_loss_that_is_linear_has_a_zero_hessian():
    model = nn.Linear(4, 1)
    operator = loss_operator(model, (noise(6, 4), noise(6, 1)), loss=lambda outputs, targets: outputs.mean())
    assert not (operator @ torch.ones(operator.size, 3)).any()


@pytest.mark.parametrize("build", [gpt2, vit, bert])
@pytest.mark.parametrize("budget", [None, "least"])
def test_transformers_against_forward_over_reverse(build, budget):
    model, inputs = built(build)
    model.double()
    inputs = inputs if isinstance(inputs, dict) else {"pixel_values": inputs.double()}

    def loss(outputs, targets=None):
        main = outputs.logits if "logits" in outputs else outputs.last_hidden_state
        return (main**2).mean() + main.logsumexp(-1).mean()

    oracle = FlatLoss(model, inputs, loss)
    data = inputs, torch.zeros(2)
    least = least_memory(lambda memory: loss_operator(model, data, loss=loss, memory=memory)) if budget else None
    operator = loss_operator(model, data, loss=loss, memory=least)
    vector = noise(operator.size)
    assert_close(operator @ vector, oracle.product(vector), TOLERANCE)


def test_language_model_with_its_own_loss_and_with_ours():
    """The model's loss is the mean over the shifted tokens; the same by name needs the shift done by hand.

    The model computes its loss in single precision whatever its own.
    """
    single = RELATIVE[torch.float32]
    model, inputs = built(gpt2)
    model.double()
    ids = inputs["input_ids"]
    own = loss_operator(model, {"input_ids": ids, "labels": ids}, loss=None)
    oracle = FlatLoss(model, {"input_ids": ids, "labels": ids}, lambda outputs: outputs.loss)
    vector = noise(own.size)
    expected = oracle.product(vector)
    assert_close(own @ vector, expected, single)
    assert_close(loss_operator(model, [({"input_ids": ids}, ids)], loss=None) @ vector, expected, single)
    each = [{"input_ids": row[None], "labels": row[None]} for row in ids]
    assert_close(loss_operator(model, each, loss=None) @ vector, expected, single)
    ignored = torch.cat([ids[:, 1:], torch.full((2, 1), -100)], 1)
    assert_close(loss_operator(model, ({"input_ids": ids}, ignored), loss="cross_entropy") @ vector, expected, single)


def test_single_precision_is_accumulated_in_double_and_half_is_measured_in_single():
    model, inputs = MODELS["convolutional"]()
    model, targets = model.eval(), classes()
    exact = loss_operator(model, (inputs, targets), loss="cross_entropy")
    vector = noise(exact.size)
    expected = exact @ vector
    single = copy.deepcopy(model).float()
    operator = loss_operator(single, in_batches(inputs.float(), targets, 3), loss="cross_entropy")
    assert operator.dtype == torch.float32
    assert (operator @ vector.float()).dtype == torch.float32
    assert (operator @ vector).dtype == torch.float64
    assert_close(operator @ vector, expected, 10 * RELATIVE[torch.float32])
    promoted = loss_operator(single, in_batches(inputs.float(), targets, 3), loss="cross_entropy", dtype=torch.float64)
    assert promoted.dtype == torch.float64
    assert_close(promoted @ vector, expected, 10 * RELATIVE[torch.float32])  # the weights were rounded to single
    half = copy.deepcopy(model).bfloat16()
    rounded = copy.deepcopy(half).double()
    operator = loss_operator(half, (inputs.bfloat16(), targets), loss="cross_entropy")
    assert operator.dtype == torch.float32
    reference = loss_operator(rounded, (inputs.bfloat16().double(), targets), loss="cross_entropy") @ vector
    assert_close(operator @ vector, reference, 10 * RELATIVE[torch.float32])


def test_flatten_and_unflatten_are_inverse():
    model, inputs = multilayer()
    operator = loss_operator(model, (inputs, classes()), loss="cross_entropy")
    vector = noise(operator.size)
    parts = operator.unflatten(vector)
    assert {name: part.shape for name, part in parts.items()} == {n: p.shape for n, p in model.named_parameters()}
    assert torch.equal(operator.flatten(parts), vector)


def test_scipy_view_and_empty_block():
    model, inputs = multilayer()
    operator = loss_operator(model, (inputs, classes()), loss="cross_entropy")
    vector = noise(operator.size)
    assert_close(torch.from_numpy(operator.to_scipy() @ vector.numpy()), operator @ vector, TOLERANCE)
    assert (operator @ vector[:, None][:, :0]).shape == (operator.size, 0)


def test_the_model_is_left_as_it_was():
    model, inputs = multilayer()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    random, before = torch.get_rng_state(), copy.deepcopy(model.state_dict())
    operator = loss_operator(model, (inputs, classes()), loss="cross_entropy")
    operator @ torch.ones(operator.size)
    assert operator.gradient.isfinite().all()
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert model[0].bias.grad is None
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_progress_is_told():
    model, inputs = multilayer()
    told = []
    batches = in_batches(inputs, classes(), 4)
    operator = loss_operator(model, batches, loss="cross_entropy", progress=lambda *step: told.append(step))
    operator @ torch.ones(operator.size)
    assert ("curvature of the data", 3, 3) in told


def test_a_model_trained_on_needs_a_new_operator():
    model, inputs = multilayer()
    operator = loss_operator(model, (inputs, classes()), loss="cross_entropy")
    with torch.no_grad():
        model[0].weight.mul_(2)
    with pytest.raises(InvalidInputError, match=r"parameters changed after this operator was made.*loss_operator"):
        operator @ torch.ones(operator.size)


def test_refused_arguments():
    model, inputs = multilayer()
    data = (inputs, classes())
    with pytest.raises(InvalidInputError, match=r"no matrix called 'hesian'.*hessian"):
        loss_operator(model, data, loss="cross_entropy", kind="hesian")
    with pytest.raises(TypeError, match="unexpected keyword argument 'bugdet'"):
        loss_operator(model, data, loss="cross_entropy", bugdet=3)
    with pytest.raises(InvalidInputError, match=r"kind='gauss_newton' needs the loss.*loss=None"):
        loss_operator(model, data, loss=None, kind="gauss_newton")
    with pytest.raises(InvalidInputError, match=r"Fisher information is that of a distribution.*empirical_fisher"):
        loss_operator(model, (inputs, noise(SAMPLES, CLASSES)), loss=nn.L1Loss(), kind="fisher")
    with pytest.raises(InvalidInputError, match=r"None of the model's 6 parameters is chosen"):
        loss_operator(model.requires_grad_(False), data, loss="cross_entropy")


def test_products_that_are_not_finite_are_refused():
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    data = (torch.ones(3, 2), torch.zeros(3, 1))
    operator = loss_operator(model, data, loss=lambda outputs, targets: (outputs - targets).abs().pow(1.5).mean())
    with pytest.raises(InvalidInputError, match=r"product is NaN or infinite though the loss is finite"):
        operator @ torch.ones(2)
    with pytest.raises(InvalidInputError, match=r"vectors to multiply hold NaN"):
        loss_operator(model, data, loss="mse") @ torch.tensor([1.0, float("nan")])


def test_the_order_of_old_gives_the_same_with_a_warning():
    model, inputs = multilayer()
    data, names = (inputs, classes()), ["2.bias"]
    new = loss_operator(model, data, loss="cross_entropy", kind="fisher", parameters=names).dense()
    with pytest.warns(DeprecationWarning, match=r"write loss_operator\(model, data, …\)"):
        assert torch.equal(loss_operator(model, "cross_entropy", data, "fisher", names).dense(), new)
    with pytest.warns(DeprecationWarning, match=r"write hessian_spectrum\(model, data, …\)"):
        spectrum = sl.hessian_spectrum(model, "cross_entropy", data, kind="fisher", parameters=names)
    assert_close(spectrum.eigenvalues, torch.linalg.eigvalsh(new), 1e-10)
    with pytest.warns(DeprecationWarning, match=r"write loss_landscape\(model, data, …\)"):
        assert sl.loss_landscape(model, "cross_entropy", data, "random", points=3).losses.shape == (3, 3)


@pytest.mark.parametrize(
    "function", [sl.hessian_spectrum, sl.loss_landscape, sl.jacobian_spectrum, sl.check_hypotheses]
)
def test_public_functions_take_model_and_data_and_the_rest_by_keyword(function):
    first, second, *rest = inspect.signature(function).parameters.values()
    assert first.name == "model" and second.name in ("data", "inputs")
    assert rest and all(each.kind is each.KEYWORD_ONLY and each.default is not each.empty for each in rest)


@pytest.mark.parametrize("vectors", [1, 2, 3])
def test_a_parameter_without_a_part_in_the_loss_has_zeros_in_several_vectors(vectors):
    model = nn.Linear(4, 3)
    model.unused = nn.Parameter(torch.ones(4, 4))
    inputs, targets = noise(6, 4), torch.arange(6) % 3
    operator = loss_operator(model, (inputs, targets), loss="cross_entropy")
    columns, names = noise(operator.size, vectors), [name for name, _ in model.named_parameters()]
    sizes = [parameter.numel() for parameter in model.parameters()]
    parts = dict(zip(names, operator.apply(columns).split(sizes), strict=True))
    own = dict(zip(names, columns.split(sizes), strict=True))
    alone = loss_operator(model, (inputs, targets), loss="cross_entropy", parameters=["weight", "bias"])
    assert not bool(parts.pop("unused").any())
    assert_close(torch.cat([*parts.values()]), alone.dense() @ torch.cat([own["weight"], own["bias"]]), TOLERANCE)
