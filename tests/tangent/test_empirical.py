import copy
import inspect

import jaxtyping
import pytest
import torch
import transformers  # noqa: F401 - imported before warnings become errors
from torch import nn

from skiplens.base.errors import InvalidInputError, SkiplensError, TooLargeError
from skiplens.tangent.empirical import empirical_ntk
from tests import hugging_face
from tests.graph.dense_jacobian import dense_kernel
from tests.networks import Formula, drawn, mlp, noise
from tests.tangent.cases import CASES
from tests.tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # torch's remark

VECTORISABLE = set(CASES) - {"recurrent", "chosen_by_sample", "routed"}
"""Models that torch.func.vmap accepts; the others choose by value or have no batching rule."""


def trace(kernel):
    return torch.einsum("nomo->nm", kernel)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("outputs", ["trace", "full", 0])
def test_automatic_choice_equals_the_dense_jacobian(name, outputs):
    model, inputs = CASES[name]()
    dense = dense_kernel(model, inputs)
    expected = {"trace": trace(dense), "full": dense, 0: dense[:, 0, :, 0]}[outputs]
    assert_close(empirical_ntk(model, inputs, outputs=outputs), expected)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("algorithm", ["layers", "jacobian", "rows", "products"])
def test_every_algorithm_equals_the_dense_jacobian(name, algorithm):
    if algorithm == "jacobian" and name not in VECTORISABLE:
        pytest.skip("torch.func cannot vectorise this model")
    model, inputs = CASES[name]()
    assert_close(empirical_ntk(model, inputs, outputs="full", algorithm=algorithm), dense_kernel(model, inputs))


@pytest.mark.parametrize(
    "name", ["perceptron", "norms", "embeddings", "tied_embedding", "inner_parameter", "recurrent"]
)
@pytest.mark.parametrize("algorithm", ["auto", "rows", "products"])
def test_two_sets_of_samples(name, algorithm):
    model, inputs = CASES[name]()
    left, right = inputs[:1], inputs[1:]
    expected = dense_kernel(model, left, right)
    assert_close(empirical_ntk(model, left, right, outputs="full", algorithm=algorithm), expected)
    assert_close(empirical_ntk(model, left, right, algorithm=algorithm), trace(expected))


@pytest.mark.parametrize(("outputs", "budget"), [("trace", 2**13), ("trace", 2**14), ("full", 2**17), ("full", 2**18)])
@pytest.mark.parametrize("name", ["sequence", "norms", "embeddings", "tied_embedding"])
def test_less_memory_gives_the_same_kernel(name, outputs, budget):
    model, inputs = CASES[name]()
    dense = dense_kernel(model, inputs)
    kernel = empirical_ntk(model, inputs, outputs=outputs, memory=budget)
    assert_close(kernel, dense if outputs == "full" else trace(dense))


FAMILIES = ["resnet_basic", "resnet_bottleneck", "regnet", "convnext", "vit", "gpt2", "llama", "bert", "albert"]


def family(name):
    """A tiny model with three samples; its language outputs are cut to a few, to keep the dense oracle quick."""
    model, inputs = hugging_face.built(getattr(hugging_face, name))
    inputs = inputs if isinstance(inputs, dict) else {"pixel_values": inputs}
    inputs = {key: torch.cat([value, value[:1].flip(-1)]) for key, value in inputs.items()}
    if "input_ids" in inputs:
        few = {key: value[:, :3] for key, value in inputs.items()}
        return Formula(lambda m, **named: m.language(**named)[0][..., :4], language=model.double()), few
    return model.double(), {key: value.double() for key, value in inputs.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_hugging_face_families(name):
    model, inputs = family(name)
    dense = dense_kernel(model, inputs)
    assert_close(empirical_ntk(model, inputs, outputs="full"), dense)
    assert_close(empirical_ntk(model, inputs), trace(dense))


def test_a_model_output_gives_its_logits():
    model, inputs = hugging_face.built(hugging_face.vit)
    model, inputs = model.double(), inputs.double()
    logits = Formula(lambda m, x: m.f(x).logits, f=model)
    assert_close(empirical_ntk(model, inputs), trace(dense_kernel(logits, inputs)))


def test_linear_model_in_closed_form():
    x, y = noise(4, 3), noise(2, 3, seed=1)
    kernel = empirical_ntk(nn.Linear(3, 2), x, y, outputs="full")
    inner = x @ y.T + 1  # one for the bias
    assert_close(kernel, inner[:, None, :, None] * torch.eye(2)[None, :, None, :])


def test_batch_norm_in_training_mode_couples_the_batch():
    model = drawn(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))).train()
    x, y = noise(5, 3), noise(4, 3, seed=1)
    coupled = dense_kernel(copy.deepcopy(model), x, coupled=True)
    for algorithm in ("auto", "products"):
        assert_close(empirical_ntk(model, x, outputs="full", algorithm=algorithm), coupled)
    assert_close(empirical_ntk(model, x), trace(coupled))
    assert_close(empirical_ntk(model, x, y), trace(dense_kernel(copy.deepcopy(model), x, y, coupled=True)))


def test_batch_norm_in_evaluation_mode_does_not():
    model = drawn(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))).eval()
    assert_close(empirical_ntk(model, noise(5, 3)), trace(dense_kernel(model, noise(5, 3))))


def test_samples_coupled_by_the_formula():
    model = drawn(Formula(lambda m, x: m.f(torch.tanh(m.f(x) - m.f(x).mean(0))), f=nn.Linear(3, 3)))
    x = noise(4, 3)
    assert_close(empirical_ntk(model, x, outputs="full"), dense_kernel(model, x, coupled=True))


def test_chosen_parameters_add_up():
    model, x = CASES["perceptron"]()
    first = empirical_ntk(model, x, parameters=lambda name: name.startswith("0"))
    last = empirical_ntk(model, x, parameters=["2.weight", "2.bias"])
    assert_close(first + last, trace(dense_kernel(model, x)))


def test_permuting_samples_permutes_the_kernel():
    model, x = CASES["norms"]()
    order = [2, 0, 3, 1]
    assert_close(empirical_ntk(model, x[order]), empirical_ntk(model, x)[order][:, order])


def test_kernel_is_symmetric_to_the_bit_and_positive():
    model, x = CASES["conv2d"]()
    kernel = empirical_ntk(model, x, outputs="full").reshape(8, 8)
    assert torch.equal(kernel, kernel.T)
    # Rank 8 of a sum of squares: no eigenvalue below rounding of the largest.
    assert torch.linalg.eigvalsh(kernel).min() > -1e-14 * kernel.trace()


def test_outputs_with_several_axes_are_numbered_flat_or_by_axis():
    model, x = CASES["sequence"]()
    dense = dense_kernel(model, x)
    assert_close(empirical_ntk(model, x, outputs=(2, 1)), dense[:, 5, :, 5])
    assert_close(empirical_ntk(model, x, outputs=-1), dense[:, -1, :, -1])


@pytest.mark.parametrize("name", ["norms", "embeddings", "transformer", "conv2d"])
def test_single_precision(name):
    model, inputs = CASES[name]()
    expected = empirical_ntk(model, inputs)
    inputs = inputs.float() if inputs.is_floating_point() else inputs
    kernel = empirical_ntk(model.float(), inputs)
    assert kernel.dtype == torch.float32
    # Rounding of the forward pass is amplified by the norms' division by small deviations: ten times the usual.
    assert_close(kernel, expected.float(), relative=1e-4)


@pytest.mark.parametrize("algorithm", ["auto", "jacobian", "rows", "products"])
def test_the_model_is_as_before_to_the_bit(algorithm):
    for mode in (True, False):
        model, x = CASES["norms"]()
        model.train(mode)
        model[0].weight.grad = torch.ones_like(model[0].weight)
        before, random = _copy(model), torch.get_rng_state()
        if algorithm != "jacobian" or not mode:
            empirical_ntk(model, x, algorithm=algorithm)
        assert torch.equal(torch.get_rng_state(), random)
        _assert_identical(model, before)


def test_the_model_is_as_before_after_an_error():
    model, x = CASES["norms"]()
    model.train()
    before = _copy(model)
    with pytest.raises(TooLargeError):
        empirical_ntk(model, x, memory=8)
    _assert_identical(model, before)


def _copy(model):
    twin = copy.deepcopy(model)
    for parameter, own in zip(twin.parameters(), model.parameters(), strict=True):
        parameter.grad = None if own.grad is None else own.grad.clone()
    return twin


def _assert_identical(model, before):
    for (name, value), (_, old) in zip(model.state_dict().items(), before.state_dict().items(), strict=True):
        assert torch.equal(value, old), name
    for parameter, old in zip(model.parameters(), before.parameters(), strict=True):
        assert parameter.requires_grad == old.requires_grad
        assert (parameter.grad is None) == (old.grad is None)
        assert parameter.grad is None or torch.equal(parameter.grad, old.grad)
    for module, old in zip(model.modules(), before.modules(), strict=True):
        assert module.training == old.training
        assert len(module._forward_hooks) == len(old._forward_hooks)


def test_works_inside_no_grad():
    model, x = CASES["norms"]()
    expected = empirical_ntk(model, x)
    with torch.no_grad():
        assert torch.equal(empirical_ntk(model, x), expected)


def test_progress_reaches_its_end():
    steps = []
    model, x = CASES["sequence"]()
    empirical_ntk(model, x, progress=lambda label, done, total: steps.append((label, done, total)))
    assert steps[0][:2] == ("tangent kernel", 0)
    assert steps[-1][1] == steps[-1][2] == len(steps) - 1


def test_a_kernel_that_cannot_fit_says_what_would():
    model, x = mlp(), noise(100, 3)
    with pytest.raises(TooLargeError, match=r"300 × 300 entries .* may be used. At most 26 samples .*outputs='trace'"):
        empirical_ntk(model, x, outputs="full", memory=100_000)
    empirical_ntk(model, x[:26], outputs="full", memory=100_000)


def test_gradients_that_cannot_fit_say_so():
    model = nn.Linear(100, 1)
    with pytest.raises(TooLargeError, match=r"for a single row of a layer.*samples fit.*NTKOperator"):
        empirical_ntk(Formula(lambda m, x: m.f(x) * m.f.weight.sum(), f=model), noise(10, 100), memory=3200)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.fill_(torch.nan), "NaN or infinite values in 5 of 5 samples"),
        (lambda x: x.to("meta"), "is on meta and the model's parameters are on cpu"),
        (lambda x: x[:, :2], "cannot be called with these inputs"),
        (lambda x: x[:0], "no samples"),
    ],
)
def test_bad_inputs_get_one_clear_error(change, message):
    model, x = CASES["perceptron"]()
    with pytest.raises(InvalidInputError, match=message):
        empirical_ntk(model, change(x))
    with pytest.raises(InvalidInputError, match=message):
        empirical_ntk(model, noise(5, 3), change(noise(5, 3)))


def test_bad_options_get_one_clear_error(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as for a user, whose types nobody checks
    model, x = CASES["perceptron"]()
    with pytest.raises(TypeError, match="unexpected keyword argument 'bugdet'"):
        empirical_ntk(model, x, bugdet=3)
    with pytest.raises(InvalidInputError, match=r"no algorithm 'layer'. Did you mean layers"):
        empirical_ntk(model, x, algorithm="layer")


def test_a_model_without_parameters_gets_one_clear_error():
    with pytest.raises(InvalidInputError, match="None of the model's 0 parameters is chosen"):
        empirical_ntk(nn.Tanh(), noise(2, 3))


def test_dropout_gets_one_clear_error():
    with pytest.raises(SkiplensError, match="Dropout in training mode"):
        empirical_ntk(nn.Sequential(nn.Linear(3, 30), nn.Dropout()).train(), noise(2, 3))


def test_the_contract_of_names():
    names = ["model", "inputs", "other", "outputs", "parameters", "algorithm", "memory", "progress"]
    assert list(inspect.signature(empirical_ntk).parameters) == names
