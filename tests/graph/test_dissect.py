"""The door: what may come in, what is refused and how, and that nothing of the model changes."""

import collections
import random
import warnings

import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError, NotExportableError
from skiplens.graph.dissect import dissect, find_residual_blocks
from tests.networks import Formula, LinearResidual, PostActivation, linear, mlp, noise


def numbers(model: nn.Module) -> dict:
    """Everything about a model that a look might disturb, copied."""
    return {
        "parameters": {name: p.detach().clone() for name, p in model.named_parameters()},
        "identities": {name: id(p) for name, p in model.named_parameters()},
        "buffers": {name: b.clone() for name, b in model.named_buffers()},
        "gradients": {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()},
        "flags": {name: p.requires_grad for name, p in model.named_parameters()},
        "modes": {name: module.training for name, module in model.named_modules()},
        "hooks": {name: list(module._forward_hooks.values()) for name, module in model.named_modules()},
        "attributes": {name: sorted(module.__dict__) for name, module in model.named_modules()},
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
    }


def assert_same(left: dict, right: dict) -> None:
    for key in ("parameters", "buffers", "torch"):
        torch.testing.assert_close(left[key], right[key], rtol=0, atol=0)
    for name, gradient in left["gradients"].items():
        other = right["gradients"][name]
        assert (gradient is None and other is None) or torch.equal(gradient, other), name
    for key in ("identities", "flags", "modes", "hooks", "attributes", "python"):
        assert left[key] == right[key], key


class Remembering(nn.Module):
    """Batch norm, dropout, a hook, a frozen layer and a forward pass that stores an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.block = PostActivation(3, 3)
        self.frozen = nn.Conv2d(3, 3, 1).requires_grad_(False)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        self.seen = self.block(self.drop(x))
        return self.frozen(self.seen)


@pytest.fixture(params=["eval", "train"])
def disturbed(request):
    """A model with gradients and a hook, in either mode."""
    model = Remembering().train(request.param == "train")
    model(noise(2, 3, 4, 4)).sum().backward()
    del model.seen
    model.block.register_forward_hook(lambda *_: None)
    return model


def test_changes_nothing_of_the_model(disturbed):
    inputs = noise(2, 3, 4, 4)
    before = numbers(disturbed)
    assert len(find_residual_blocks(disturbed, inputs)) == 1
    assert_same(before, numbers(disturbed))


def test_changes_nothing_of_the_model_when_the_inputs_are_wrong(disturbed):
    before = numbers(disturbed)
    with pytest.raises(InvalidInputError):
        find_residual_blocks(disturbed, noise(2, 4, 4, 4))
    assert_same(before, numbers(disturbed))


def test_changes_nothing_of_the_model_when_it_cannot_be_exported(disturbed):
    model = Formula(through_numpy, f=disturbed)
    before = numbers(model)
    with pytest.raises(NotExportableError):
        find_residual_blocks(model, noise(2, 3, 4, 4).abs())
    assert_same(before, numbers(model))


def test_the_check_of_these_tests_can_fail(disturbed):
    before = numbers(disturbed)
    disturbed.block.bn1.running_mean += 1
    with pytest.raises(AssertionError):
        assert_same(before, numbers(disturbed))


def test_does_not_change_inputs_that_the_model_changes():
    inputs = noise(2, 3)
    find_residual_blocks(Formula(lambda m, x: m.f(x.mul_(2)), f=linear()), inputs)
    assert torch.equal(inputs, noise(2, 3))


def test_takes_a_tensor_a_tuple_or_a_mapping():
    model = Formula(lambda m, x, scale=1.0: x + scale * m.f(x), f=linear())
    x = noise(2, 3)
    mappings = {"x": x, "scale": 2.0}, collections.UserDict(x=x)
    for inputs in (x, (x,), (x, 0.5), *mappings):
        assert [block.name for block in find_residual_blocks(model, inputs)] == ["f"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_takes_any_precision(dtype):
    inputs = noise(2, 3, dtype=dtype)
    model = LinearResidual().to(dtype)
    network = dissect(model, inputs)
    assert len(network.blocks) == 3
    assert torch.equal(network.outputs()["output"], model(inputs))


def test_finds_blocks_of_a_model_with_nan_weights():
    model = LinearResidual()
    nn.init.constant_(model.layers[1].weight, torch.nan)
    assert len(find_residual_blocks(model, noise(2, 3))) == 3


def test_names_tied_weights_once():
    model = LinearResidual(depth=2)
    model.layers[1].weight = model.layers[0].weight
    blocks = find_residual_blocks(model, noise(2, 3))
    assert [block.branch.parameters for block in blocks] == [("layers.0.weight",)] * 2


def test_finds_blocks_under_frozen_parameters_and_without_gradients():
    model = LinearResidual().requires_grad_(False)
    with torch.no_grad():
        assert len(find_residual_blocks(model, noise(2, 3))) == 3
    with torch.inference_mode():
        assert len(find_residual_blocks(model, noise(2, 3))) == 3


def test_finds_blocks_without_any_data():
    blocks = find_residual_blocks(LinearResidual(depth=2).to("meta"), noise(2, 3).to("meta"))
    assert [block.name for block in blocks] == ["layers.0", "layers.1"]


def test_copes_with_shapes_that_depend_on_the_data():
    def selecting(m, x):
        rows = x[x[:, 0] > -10]
        return rows + m.f(rows)

    (block,) = find_residual_blocks(Formula(selecting, f=linear()), noise(2, 3))
    assert block.output_shape == (-1, 3)


@pytest.mark.parametrize("model", ["a model", None, nn.Linear, lambda x: x])
def test_refuses_what_is_not_a_module(model):
    with pytest.raises(InvalidInputError, match=r"model is .* of type .*; a torch.nn.Module instance was wanted"):
        find_residual_blocks(model, noise(2, 3))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([1.0], "inputs is a list. Give a tensor, a tuple"),
        (3, "inputs is 3. Give a tensor"),
        ({1: 2}, "inputs is a dict. Give a tensor"),
    ],
)
def test_refuses_inputs_of_another_form(inputs, said):
    with pytest.raises(InvalidInputError, match=said):
        find_residual_blocks(linear(), inputs)


def test_says_what_came_when_the_shape_is_wrong(capfd, caplog):
    expected = (
        r"cannot be called with these inputs: float64 tensor of shape \(2, 5\) on cpu\. "
        r"Its first parameter is float64 on cpu\. The model said: RuntimeError: .*shapes cannot be multiplied"
    )
    with pytest.raises(InvalidInputError, match=expected):
        find_residual_blocks(LinearResidual(), noise(2, 5))
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_says_what_came_when_the_dtype_is_wrong():
    with pytest.raises(InvalidInputError, match=r"float32 tensor of shape .* first parameter is float64 on cpu"):
        find_residual_blocks(LinearResidual(), noise(2, 3, dtype=torch.float32))


def test_says_what_came_when_the_device_is_wrong():
    with pytest.raises(InvalidInputError, match=r"do not lie where .* on meta\. Its first parameter is float64 on cpu"):
        find_residual_blocks(LinearResidual(), noise(2, 3).to("meta"))


def test_says_what_came_when_a_token_is_not_in_the_vocabulary():
    with pytest.raises(InvalidInputError, match="IndexError: index out of range"):
        find_residual_blocks(nn.Embedding(3, 2), torch.tensor([7]))


def test_refuses_keywords_that_the_model_does_not_have():
    with pytest.raises(InvalidInputError, match=r"pixels=float64 tensor .* unexpected keyword argument 'pixels'"):
        find_residual_blocks(linear(), {"pixels": noise(2, 3)})


def test_refuses_a_model_without_tensors_in_its_output():
    with pytest.raises(InvalidInputError, match="Formula returned no tensor for these inputs"):
        find_residual_blocks(Formula(lambda m, x: {"shape": x.shape[0]}, f=linear()), noise(2, 3))


def test_refuses_lazy_parameters():
    with pytest.raises(InvalidInputError, match=r"lazy parameters .* Call the model once"):
        find_residual_blocks(nn.LazyLinear(3), noise(2, 3))


def test_refuses_a_model_that_changes_its_parameters_and_leaves_them_alone():
    def decaying(m, x):
        with torch.no_grad():
            m.f.weight.mul_(0.9)
        return m.f(x)

    model = Formula(decaying, f=linear())
    weight = model.f.weight.detach().clone()
    with pytest.raises(InvalidInputError, match=r"changes its own parameters when it is called: f\.weight"):
        find_residual_blocks(model, noise(2, 3))
    assert torch.equal(model.f.weight, weight)


def by_value(m, x):
    return m.f(x)[: len(x[:, 0].unique())]


def through_numpy(m, x):
    return m.f(x) + torch.from_numpy(x.numpy().copy())


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (by_value, r"by the values inside a tensor \(at .*test_dissect.py:\d+, in by_value"),
        (through_numpy, r"torch.export said: \w+: .* \(at .*test_dissect.py:\d+, in through_numpy"),
    ],
)
def test_says_why_a_model_cannot_be_exported_and_where(rule, said, capfd):
    with pytest.raises(NotExportableError, match=f"Formula cannot be exported, so its graph cannot be read: .*{said}"):
        find_residual_blocks(Formula(rule, f=linear()), 10 * noise(2, 3).abs())
    assert capfd.readouterr() == ("", "")


def test_says_that_torchscript_cannot_be_exported():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of torch warn of it, the oldest do not
        scripted = torch.jit.script(mlp())
    with pytest.raises(NotExportableError, match=r"is compiled TorchScript.* Hand in the nn.Module"):
        find_residual_blocks(scripted, noise(2, 3))
