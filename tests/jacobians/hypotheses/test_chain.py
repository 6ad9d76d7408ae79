"""Operations of torch in the words of the theory, with gains against the Jacobian."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def described(model, inputs):
    from skiplens.graph.dissect import dissect
    from skiplens.jacobians.hypotheses.chain import describe_model
    from skiplens.jacobians.hypotheses.parts import GraphView

    return describe_model(GraphView(dissect(model, inputs)), torch.Generator().manual_seed(0))


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


IMAGES = (2, 3, 6, 6)
LINEAR = {
    "average": (nn.AvgPool2d(2), math.sqrt(1 / 4)),
    "overlapping": (nn.AvgPool2d(3, 1), math.sqrt(9 / 9)),
    "adaptive": (nn.AdaptiveAvgPool2d(2), math.sqrt(4 / 36)),
    "uneven": (nn.AdaptiveAvgPool2d(4), None),
    "global": (Function(lambda x: x.mean((2, 3))), math.sqrt(1 / 36)),
    "scaled": (Function(lambda x: 3 * x), 3.0),
    "divided": (Function(lambda x: x / 4), 0.25),
    "crop": (Function(lambda x: x[:, :2]), 1.0),
    "pad": (Function(lambda x: F.pad(x, (1, 1))), 1.0),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_maps_have_their_largest_singular_value(name):
    from skiplens.jacobians.hypotheses.descriptions import LinearMap

    module, expected = LINEAR[name]
    (part,) = described(module, torch.randn(IMAGES))
    assert isinstance(part, LinearMap)
    assert (part.inputs, part.outputs) == (108, module(torch.zeros(IMAGES))[0].numel())
    assert part.gain == pytest.approx(expected)
    if expected is not None:
        jacobian = torch.func.jacrev(lambda x: module(x).flatten())(torch.randn(1, 3, 6, 6)).flatten(1)
        assert torch.linalg.matrix_norm(jacobian, 2) <= part.gain * (1 + 1e-12)


@pytest.mark.parametrize("window", [(2, 2), (3, 1)])
def test_max_pooling_is_kinked(window):
    from skiplens.jacobians.hypotheses.descriptions import Kinked

    (part,) = described(nn.MaxPool2d(*window), torch.randn(IMAGES))
    assert isinstance(part, Kinked)
    assert part.gain == math.ceil(window[0] / window[1])
    jacobian = torch.func.jacrev(lambda x: nn.MaxPool2d(*window)(x).flatten())(torch.randn(1, 3, 6, 6)).flatten(1)
    assert torch.linalg.matrix_norm(jacobian, 2) <= part.gain * (1 + 1e-12)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (nn.Tanh(), "tanh"), (nn.ReLU(), "relu"), (nn.GELU(), "gelu"), (nn.GELU("tanh"), "gelu_tanh"),
        (nn.SiLU(), "silu"), (nn.Softplus(), "softplus"), (nn.ELU(), "elu"), (nn.LeakyReLU(), "leaky_relu"),
        (nn.Sigmoid(), "sigmoid"),
        (nn.Softsign(), "softsign"), (nn.Mish(), "mish"), (nn.Hardtanh(), "hardtanh"), (nn.SELU(), "selu"),
        (nn.LogSigmoid(), "logsigmoid"), (nn.Hardswish(), "hardswish"),
    ],
)  # fmt: skip
def test_nonlinearities_are_known_by_name(module, name):
    from skiplens.jacobians.systems.elementwise import Elementwise

    (part,) = described(module, torch.randn(2, 5))
    assert isinstance(part, Elementwise)
    assert part.nonlinearity.name == name


def test_nonlinearities_with_options_are_not_recognised():
    from skiplens.jacobians.hypotheses.descriptions import Unrecognised

    for module in (nn.Softplus(beta=5), nn.ELU(alpha=2)):
        (part,) = described(module, torch.randn(2, 5))
        assert isinstance(part, Unrecognised)
        assert part.what.endswith("with options")


def test_affine_maps():
    from skiplens.jacobians.hypotheses.descriptions import FreeMap
    from skiplens.jacobians.systems.affine import Affine
    from skiplens.jacobians.systems.parameterisation import Free

    assert described(nn.Linear(5, 4), torch.randn(2, 5)) == (Affine(Free(4, 5), True, name="linear in the model"),)
    assert described(nn.Sequential(nn.Linear(5, 4, bias=False)), torch.randn(2, 5)) == (Affine(Free(4, 5), name="0"),)
    (tokens,) = described(nn.Sequential(nn.Linear(5, 4)), torch.randn(2, 3, 5))
    assert tokens == FreeMap("0", 15, 12, 20, 5)
    (images,) = described(nn.Sequential(nn.Conv2d(3, 4, 3)), torch.randn(IMAGES))
    assert images == FreeMap("0", 108, 64, 108, 27)


def test_weights_that_are_computed_are_not_recognised():
    from skiplens.jacobians.hypotheses.descriptions import Unrecognised

    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 4)))
    (part,) = described(model, torch.randn(2, 5))
    assert isinstance(part, Unrecognised)
    assert "weight that is computed" in part.what


def test_normalised_convolutions_of_the_zoo():
    from skiplens.jacobians.systems.affine import Affine, Convolution
    from skiplens.jacobians.systems.parameterisation import EntryNormalised
    from skiplens.zoo.macdonald2023 import NormalisedConv2d, Parameterisation

    layer = NormalisedConv2d((3, 4), 3, Parameterisation("entry", 0.5, 0.1), stride=2, padding=1)
    (part,) = described(nn.Sequential(layer), torch.randn(IMAGES))
    kernel = EntryNormalised(4, 27, 0.5, 0.1)
    assert part == Affine(Convolution(kernel, 3, (6, 6), (3, 3), (2, 2), (1, 1)), name="0")


def test_norms():
    from skiplens.jacobians.hypotheses.descriptions import Unrecognised
    from skiplens.jacobians.systems.affine import ScaleShift
    from skiplens.jacobians.systems.norms import BatchNorm
    from skiplens.zoo.macdonald2023 import BatchNormalise

    images = torch.randn(IMAGES)
    norm, scale = BatchNorm(3, 1e-5, 36, name="0"), ScaleShift(3, 36, name="0")
    assert described(nn.Sequential(nn.BatchNorm2d(3)), images) == (norm, scale)
    assert described(nn.Sequential(nn.BatchNorm2d(3, affine=False)), images) == (norm,)
    assert described(nn.Sequential(nn.BatchNorm2d(3)).eval(), images) == (scale,)
    assert described(nn.Sequential(BatchNormalise()), images) == (norm,)
    (part,) = described(nn.Sequential(nn.BatchNorm2d(3, affine=False).eval()), images)
    assert isinstance(part, Unrecognised)


def within_samples():
    from skiplens.jacobians.systems.affine import ScaleShift
    from skiplens.jacobians.systems.norms import SampleNorm

    def norm(groups, epsilon=1e-5, centred=True):
        return SampleNorm(108, groups, epsilon, centred, name="0")

    precision = torch.finfo(torch.float64).eps
    return [
        (nn.LayerNorm(6), (norm(18), ScaleShift(6, 18, name="0"))),
        (nn.LayerNorm((3, 6, 6), 0.1, elementwise_affine=False), (norm(1, 0.1),)),
        (nn.GroupNorm(3, 3), (norm(3), ScaleShift(3, 36, name="0"))),
        (nn.GroupNorm(1, 3, affine=False), (norm(1),)),
        (nn.InstanceNorm2d(3), (norm(3),)),
        (nn.InstanceNorm2d(3, affine=True), (norm(3), ScaleShift(3, 36, name="0"))),
        (nn.RMSNorm(6, 0.2), (norm(18, 0.2, False), ScaleShift(6, 18, name="0"))),
        (nn.RMSNorm(6, elementwise_affine=False), (norm(18, precision, False),)),
    ]


@pytest.mark.parametrize("case", range(8))
def test_norms_within_samples(case):
    """Their descriptions, and that these compute what the module does."""
    module, expected = within_samples()[case]
    images = torch.randn(IMAGES)
    parts = described(nn.Sequential(module), images)
    assert parts == expected
    value = parts[0](torch.zeros(0), images.flatten(1).T)
    torch.testing.assert_close(value.T.reshape(IMAGES), module(images).detach())  # at first scales are 1, shifts 0


def test_instance_norms_with_running_statistics_are_not_recognised():
    from skiplens.jacobians.hypotheses.descriptions import Unrecognised

    module = nn.InstanceNorm2d(3, track_running_stats=True).eval()
    (part,) = described(nn.Sequential(module), torch.randn(IMAGES))
    assert isinstance(part, Unrecognised)
    assert "running statistics" in part.what


def test_what_changes_nothing_is_left_out():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Tanh()).eval()
    assert len(described(model, torch.randn(IMAGES))) == 1
    assert described(model.train(), torch.randn(IMAGES))[0].what == "dropout in train mode"


def test_functions_outside_of_modules_are_named_by_their_place():
    (part,) = described(Function(torch.relu), torch.randn(2, 5))
    assert part.name == "relu in the model"


def test_several_inputs_and_parallel_paths_are_not_recognised():
    from skiplens.jacobians.hypotheses.descriptions import Unrecognised

    (part,) = described(Function(lambda x: torch.tanh(x) * torch.sigmoid(x)), torch.randn(2, 5))[-1:]
    assert isinstance(part, Unrecognised)
    assert "several activations meet" in part.what


def test_added_branches_are_parallel():
    from skiplens.jacobians.hypotheses.descriptions import ParallelBranches, ResidualLayer

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(5, 5), nn.Linear(5, 5)

        def forward(self, x):
            return x + self.one(x) + self.two(x)

    (layer,) = described(Twice(), torch.randn(2, 5))
    assert isinstance(layer, ResidualLayer)
    assert isinstance(layer.branch[0], ParallelBranches)
    assert [branch[0].name for branch in layer.branch[0].branches] == ["one", "two"]


def test_blocks_inside_of_branches_are_residual_layers():
    from skiplens.jacobians.hypotheses.descriptions import ResidualLayer
    from skiplens.zoo.layers import Residual

    inner = Residual(nn.Linear(5, 5))
    (layer,) = described(Residual(nn.Sequential(nn.Linear(5, 5), inner)), torch.randn(2, 5))
    assert [type(part).__name__ for part in layer.branch] == ["Affine", "ResidualLayer"]
    assert isinstance(layer.branch[1], ResidualLayer)
