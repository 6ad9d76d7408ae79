import pytest
import torch
import torch.nn.functional as F

from skiplens import zoo
from skiplens.zoo.catalogue import count_parameters
from tests.tolerances import assert_close
from tests.zoo.preact_by_hand import preact_features
from tests.zoo.small_networks import sines


def test_parameters_for_100_classes():
    assert count_parameters(zoo.build("preact_resnet18", classes=100)) == 11_217_316


STRIDES = {18: [1, 1, 2, 1, 2, 1, 2, 1], 50: [1] * 3 + [2] + [1] * 3 + [2] + [1] * 5 + [2] + [1] * 2}


def by_hand(network, images, layers, kind):
    """The note's network from its parameters alone."""
    stem, *kernels = [p for p in network.parameters() if p.dim() == 4]
    *_, head, bias = network.parameters()
    per_branch = 2 if layers == 18 else 3
    h = preact_features(F.conv2d(images, stem, padding=1), kernels, STRIDES[layers], per_branch, kind)
    assert not kernels
    return h.mean((2, 3)) @ head.T + bias


@pytest.mark.parametrize(
    ("name", "layers", "kind"),
    [
        ("preact_resnet18", 18, "projection"),
        ("preact_resnet18_avgskip", 18, "average_pool"),
        ("preact_resnet18_isoskip", 18, "isometric_pool"),
        ("preact_resnet50", 50, "projection"),
        ("preact_resnet50_avgskip", 50, "average_pool"),
    ],
)
def test_forward_by_hand(name, layers, kind):
    network, images = zoo.build(name, width=4), sines(3, 3, 16, 16)
    # Fifty normalisations of few pixels each lose a digit more than a plain sum does.
    assert_close(network(images).detach(), by_hand(network, images, layers, kind).detach(), relative=1e-10)


def test_weights_pass_between_the_variants():
    plain, pooling = zoo.build("preact_resnet18", 1, width=4), zoo.build("preact_resnet18_avgskip", 2, width=4)
    pooling.load_state_dict(plain.state_dict())
    images = sines(3, 3, 8, 8)
    assert not torch.equal(plain(images), pooling(images))


def test_imagenet_stem_shrinks_fourfold():
    network = zoo.build("preact_resnet50", stem="imagenet", width=4, classes=7)
    images = sines(2, 3, 64, 64)
    assert network.stem(images).shape == (2, 4, 16, 16)
    assert network(images).shape == (2, 7)
    assert zoo.entry("preact_resnet50").settings({"stem": "imagenet"}).input_shape() == (3, 224, 224)


def test_weights_are_uniform_over_inputs_as_in_pytorch():
    network = zoo.build("preact_resnet18", width=8)
    for kernel in (p for p in network.parameters() if p.dim() == 4 and p.numel() > 4000):
        bound = (kernel[0].numel()) ** -0.5
        assert 0.99 * bound < kernel.abs().max() <= bound
    # The mean of n squares of U(-b, b) is b²/3 with standard error b² sqrt(4/45/n).
    assert abs(kernel.square().mean() / bound**2 - 1 / 3) < 4 * (4 / 45 / kernel.numel()) ** 0.5
