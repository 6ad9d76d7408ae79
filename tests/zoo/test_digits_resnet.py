import pytest
import torch
import torch.nn.functional as F

from skiplens import zoo
from tests.tolerances import assert_close
from tests.zoo.preact_by_hand import normalised_relu, preact_features
from tests.zoo.small_networks import sines


def test_forward_by_hand():
    network, images = zoo.build("digits_resnet", width=4), sines(3, 1, 12, 12)
    stem, *kernels = [p for p in network.parameters() if p.dim() == 4]
    *_, head, bias = network.parameters()
    strides = [1, 1, 2, 1, 1, 2, 1, 1]
    h = preact_features(F.conv2d(images, stem, padding=1), kernels, strides, 2, "projection")
    expected = normalised_relu(h).mean((2, 3)) @ head.T + bias
    # Some twenty normalisations of few pixels each lose a digit more than a plain sum does.
    assert_close(network(images).detach(), expected.detach(), relative=1e-10)


def test_any_image_size_channels_and_classes():
    network = zoo.build("default", channels=3, classes=7)
    assert network(sines(2, 3, 32, 32)).shape == (2, 7)


@pytest.mark.slow
def test_learns_digits():
    from skiplens import data

    sample = data.sample()
    images = torch.as_tensor(sample.images).reshape(-1, 1, 28, 28).to(torch.float32) / 255
    labels = torch.as_tensor(sample.labels).long()
    torch.set_default_dtype(torch.float32)
    network, order = zoo.build("default"), torch.Generator().manual_seed(0)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for _ in range(16):
        for batch in torch.randperm(1600, generator=order).split(64):
            optimiser.zero_grad()
            F.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimiser.step()
    network.eval()
    with torch.no_grad():
        accuracy = (network(images[1600:]).argmax(1) == labels[1600:]).double().mean()
    assert accuracy > 0.85  # chance is 0.1
