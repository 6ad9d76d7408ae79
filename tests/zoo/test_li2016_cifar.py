import pytest
import torch
import torch.nn.functional as F

from skiplens import zoo
from skiplens.base.errors import SettingsError
from skiplens.zoo.catalogue import count_parameters, weight_depth
from tests.tolerances import assert_close
from tests.zoo.preact_by_hand import normalised_relu
from tests.zoo.small_networks import sines

PARAMETERS = {38: 561_370, 74: 1_144_666, 110: 1_727_962, 218: 3_477_850, 434: 6_977_626}


@pytest.mark.parametrize("shortcut_depth", [1, 2, 3, 4])
@pytest.mark.parametrize("depth", [38, 110])
def test_parameters_and_depth_are_the_same_at_every_shortcut_depth(depth, shortcut_depth):
    network = zoo.build("preact_resnet", depth=depth, shortcut_depth=shortcut_depth)
    assert count_parameters(network) == PARAMETERS[depth]
    assert weight_depth(network) == depth
    assert len(network.units) == (depth - 2) // shortcut_depth


@pytest.mark.parametrize("depth", [74, 218, 434])
def test_parameters_of_the_other_depths(depth):
    assert count_parameters(zoo.build("preact_resnet", depth=depth)) == PARAMETERS[depth]


def test_the_same_seed_gives_the_same_convolutions_at_every_shortcut_depth():
    networks = [zoo.build("preact_resnet", shortcut_depth=depth, width=4) for depth in (1, 2, 3, 4)]
    first, *others = ([p for p in network.parameters() if p.dim() == 4] for network in networks)
    for other in others:
        assert all(torch.equal(left, right) for left, right in zip(first, other, strict=True))


@pytest.mark.parametrize("shortcut_depth", [1, 2, 4])
def test_forward_by_hand(shortcut_depth):
    network = zoo.build("preact_resnet", depth=14, shortcut_depth=shortcut_depth, width=3)
    images = sines(2, 3, 8, 8)
    convolutions = [p for p in network.parameters() if p.dim() == 4]
    *_, head, bias = network.parameters()
    h = F.conv2d(images, convolutions[0], padding=1)
    for start in range(1, 13, shortcut_depth):
        branch = h
        for kernel in convolutions[start : start + shortcut_depth]:
            stride = 2 if kernel.shape[0] == 2 * kernel.shape[1] else 1
            branch = F.conv2d(normalised_relu(branch), kernel, stride=stride, padding=1)
        if branch.shape != h.shape:
            h = torch.cat([h[:, :, ::2, ::2], torch.zeros_like(h[:, :, ::2, ::2])], dim=1)
        h = h + branch
    expected = normalised_relu(h).mean((2, 3)) @ head.T + bias
    assert_close(network(images).detach(), expected.detach())


def test_convolutions_start_with_the_norms_of_the_note():
    # Variance 2 / (9 outputs) makes the squared Frobenius norm 2 · inputs on average; the note allows 2 %.
    kernels = [p for p in zoo.build("preact_resnet", depth=110).parameters() if p.dim() == 4]
    norms = torch.stack([kernel.norm() for kernel in kernels]).mean()
    wanted = torch.tensor([2.0 * kernel.shape[1] for kernel in kernels]).sqrt().mean()
    assert abs(norms / wanted - 1) < 0.02


def test_a_depth_that_cannot_be_cut_into_units_is_refused():
    with pytest.raises(SettingsError, match=r"depth - 2 must be a multiple of 12. Take 14 or 26"):
        zoo.build("preact_resnet", depth=20, shortcut_depth=4)
    with pytest.raises(SettingsError, match=r"multiple of 12. Take 14\."):
        zoo.build("preact_resnet", depth=8, shortcut_depth=4)
