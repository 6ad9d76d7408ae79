"""Which rule the probe accepts; that all of them give right kernels is tested with the kernels."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens.graph.functional import pure_model
from skiplens.graph.inputs import samples_of
from skiplens.tangent import plan
from skiplens.tangent.calls import PatternChanged, record
from skiplens.tangent.coverage import find_coverage
from skiplens.tangent.empirical import empirical_ntk
from tests.tangent.cases import CASES
from tests.tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


def cover_of(name):
    model, inputs = CASES[name]()
    return find_coverage(pure_model(model), samples_of(inputs))


def kinds(cover, parameter):
    return [type(use.rule).__name__ for use in cover.uses[parameter]]


@pytest.mark.parametrize(
    ("name", "parameter", "expected"),
    [
        ("perceptron", "0.weight", ["LinearWeight"]),
        ("perceptron", "0.bias", ["ChannelSum"]),
        ("one_layer", "weight", ["LinearWeight"]),
        ("conv2d_groups", "conv.weight", ["ConvolutionWeight"]),
        ("conv1d", "conv.weight", ["ConvolutionWeight"]),
        ("conv2d", "conv.weight", ["ConvolutionWeight"]),
        ("conv2d_same", "conv.weight", ["ConvolutionWeight"]),
        ("conv2d_circular", "conv.weight", ["ConvolutionWeight"]),
        ("conv2d_depthwise", "conv.weight", ["ConvolutionWeight"]),
        ("conv3d", "conv.weight", ["ConvolutionWeight"]),
        ("conv_transposed", "conv.weight", ["LocalGradient"]),
        ("norms", "1.weight", ["ChannelSum"]),
        ("norms", "4.weight", ["LocalGradient"]),
        ("embeddings", "words.weight", ["EmbeddingTable"]),
        ("embeddings", "positions.weight", ["EmbeddingTable"]),
        ("tied_embedding", "words.weight", ["EmbeddingTable", "LinearWeight"]),
        ("reused_layer", "f.weight", ["LinearWeight"] * 3),
        ("inner_parameter", "block.scale", ["LocalGradient"]),
        ("inner_parameter", "block.inner.weight", ["LinearWeight"]),
        ("attention", "attention.out_proj.weight", ["LocalGradient"]),
        ("folded_batch", "f.weight", ["LinearWeight"]),
        ("changing_hook", "0.weight", ["LocalGradient"]),
        ("folded_images", "conv.weight", ["ConvolutionWeight"]),
    ],
)
def test_accepted_rules(name, parameter, expected):
    assert kinds(cover_of(name), parameter) == expected


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("used_outside_its_module", "f.weight"),
        ("used_outside_its_module", "scale"),
        ("bare_parameter", "matrix"),
        ("tokens_first_of_3", "f.weight"),
        ("tokens_last_of_3", "head.weight"),
        ("tokens_first_of_5", "head.weight"),
        ("overwritten_input", "block.scale"),
        ("attention_sequence_first", "attention.in_proj_weight"),
    ],
)
def test_rules_that_would_be_wrong_are_not_accepted(name, parameter):
    assert parameter in cover_of(name).leftover


def test_unused_parameters_are_told_apart():
    cover = cover_of("frozen_and_unused")
    assert cover.unused == ("never.weight", "never.bias")
    assert set(cover.uses) == {"first.bias", "second.weight", "second.bias"}


def test_only_outputs_shared_by_all_samples_are_spread():
    cover = cover_of("embeddings")
    assert "positions" in cover.spread


def test_an_input_that_was_overwritten_after_the_call_is_noticed():
    model, inputs = CASES["perceptron"]()
    pure = pure_model(model)
    hidden = inputs.clone()
    recording = record(pure, pure.leaves(), samples_of((hidden,)), {"0": model[0]}, frozenset())
    call = recording.calls["0"][0]
    call.require_unchanged_inputs()
    call.args[0].mul_(2)
    with pytest.raises(PatternChanged, match="overwritten after the call"):
        call.require_unchanged_inputs()


class Switched(nn.Module):
    """Two layers; where it is switched, the first one's weights are used without a call of it."""

    def __init__(self, around: bool, act=F.relu) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)
        self.around, self.act = around, act

    def forward(self, x):
        made = F.linear(x, self.first.weight, self.first.bias) if self.around else self.first(x)
        return self.second(self.act(made))


@pytest.fixture
def looks(monkeypatch):
    """The models that were probed."""
    monkeypatch.setattr(plan, "_KNOWN", {})
    probed = []
    monkeypatch.setattr(plan, "find_coverage", lambda pure, few: probed.append(pure.model) or find_coverage(pure, few))
    return probed


def kernels(model, x):
    """By the layers' rules, and by one backward pass a sample and output, which knows no layer."""
    return [empirical_ntk(model, x, outputs="full", algorithm=way) for way in ("layers", "rows")]


def test_models_that_are_built_alike_are_probed_once(looks, generator):
    x = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    for _ in range(3):
        assert_close(*kernels(Switched(False).double(), x))
    assert len(looks) == 1
    assert_close(*kernels(Switched(False).double(), x[:, None]))
    assert len(looks) == 2  # other shapes


def test_a_setting_that_changes_is_seen(looks, generator):
    model, x = Switched(False).double(), torch.randn(6, 4, generator=generator, dtype=torch.float64)
    assert_close(*kernels(model, x))
    model.around = True
    assert_close(*kernels(model, x))
    model.first.weight = nn.Parameter(model.first.weight.detach())  # the same shape: nothing to look for
    assert_close(*kernels(model, x))
    model.second.register_forward_hook(lambda module, args, output: 2 * output)
    assert_close(*kernels(model, x))
    assert len(looks) == 3


def test_what_is_around_a_function_of_the_model_is_seen(looks, generator):
    x = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    for function in (F.relu, F.relu, F.tanh):
        model = Switched(False, lambda values, function=function: 2 * function(values)).double()
        assert_close(*kernels(model, x))
    assert len(looks) == 2


def test_gradients_of_zero_say_little_about_other_weights(looks, generator):
    model, x = Switched(False).double(), torch.randn(6, 4, generator=generator, dtype=torch.float64)
    nn.init.zeros_(model.second.weight)  # any rule gives the zero that the first layer gets here
    for _ in range(2):
        assert_close(*kernels(model, x))
    assert len(looks) == 2
