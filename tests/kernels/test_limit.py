import torch

from skiplens.kernels import infinite_network
from skiplens.kernels.arc_cosine import correlation_of_cosine
from skiplens.kernels.infinite_network import infinite_densenet, infinite_resnet


def test_gradient_through_checkpoints_equals_the_plain_one(monkeypatch):
    correlation = correlation_of_cosine(torch.tensor([0.95, 0.1, -0.8]))

    def gradient():
        scales = torch.linspace(0.01, 0.1, 30).requires_grad_()
        return torch.autograd.grad(infinite_resnet(scales, 2).recursion(correlation).ntk.sum(), scales)[0]

    plain = gradient()
    monkeypatch.setattr(infinite_network, "_LAYERS_WITHOUT_CHECKPOINTS", 4)
    torch.testing.assert_close(gradient(), plain, rtol=1e-13, atol=0)


def test_gradient_through_a_thousand_layers_keeps_few_states():
    rho = torch.full((1000,), 0.5, requires_grad=True)
    saved = 0

    def count(tensor):
        nonlocal saved
        saved += 1
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        infinite_densenet(1000).recursion(correlation_of_cosine(rho))
    assert saved < 1000  # without checkpoints there would be dozens for each of the 1000 layers
