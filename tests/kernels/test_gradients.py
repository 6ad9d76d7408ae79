"""Gradients by the inputs and by the branch scale, against finite differences and the plain recursion."""

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.architectures import DenseNetKernel, ResNetKernel, VanillaKernel


@pytest.mark.parametrize("kernel", [ResNetKernel(4, 2, 0.6), DenseNetKernel(3), VanillaKernel(3)])
@pytest.mark.parametrize("quantity", ["nngp", "ntk"])
def test_by_the_inputs_against_finite_differences(kernel, quantity, generator):
    X, Y = (torch.randn(n, 3, generator=generator).requires_grad_() for n in (4, 3))
    assert torch.autograd.gradcheck(lambda a, b: getattr(kernel, quantity)(a, b), (X, Y))
    assert torch.autograd.gradcheck(lambda a: getattr(kernel, quantity)(a), X)


@pytest.mark.parametrize("scale", [0.6, [0.6, 0.1, 0.9]])
@pytest.mark.parametrize("evaluation", ["table", "recursion"])
@pytest.mark.parametrize("normalise", [False, True])
def test_by_the_branch_scale_against_finite_differences(scale, evaluation, normalise, generator):
    X = torch.randn(4, 3, generator=generator)

    def ntk(alpha):
        return ResNetKernel(3, 2, alpha, evaluation=evaluation, normalise=normalise).ntk(X)

    assert torch.autograd.gradcheck(ntk, torch.tensor(scale, requires_grad=True))


def test_second_derivatives_by_the_recursion_and_the_table(generator):
    X = torch.randn(3, 2, generator=generator).requires_grad_()
    assert torch.autograd.gradgradcheck(DenseNetKernel(2, evaluation="recursion").ntk, X)
    assert torch.autograd.gradgradcheck(DenseNetKernel(2).ntk, X)


def test_of_the_diagonal_by_inputs_and_scale(generator):
    X = torch.randn(3, 2, generator=generator).requires_grad_()
    alpha = torch.tensor(0.5, requires_grad=True)
    assert torch.autograd.gradcheck(lambda X, alpha: ResNetKernel(3, 2, alpha).diagonal(X), (X, alpha))


def test_equal_opposite_and_zero_inputs_have_finite_gradients(generator):
    X = torch.randn(5, 3, generator=generator)
    X[1], X[2], X[3] = X[0], -X[0], 0
    X.requires_grad_()
    (gradient,) = torch.autograd.grad(ResNetKernel(4, 2, 0.6).ntk(X).sum(), X)
    assert torch.isfinite(gradient).all()


def test_of_nearly_equal_inputs_equals_the_recursion(generator):
    X = torch.randn(3, 3, generator=generator)
    X[1] = X[0] + 1e-5 * X[2]
    gradients = []
    for evaluation in ("table", "recursion"):
        inputs = X.clone().requires_grad_()
        kernel = ResNetKernel(50, 2, 0.9, evaluation=evaluation, normalise=True)
        gradients.append(torch.autograd.grad(kernel.ntk(inputs)[0, 1], inputs)[0])
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("depth", [3, 260])  # checkpoints begin above 256 layers
def test_in_single_precision_equals_double(depth, generator):
    X = torch.randn(6, 4, generator=generator)
    results = []
    for dtype in (torch.float32, torch.float64):
        inputs = X.float().to(dtype).requires_grad_()
        alpha = torch.tensor(0.05, dtype=dtype, requires_grad=True)
        K = ResNetKernel(depth, 2, alpha).ntk(inputs)
        assert K.dtype == dtype
        results.append(torch.autograd.grad(K.square().sum(), (inputs, alpha)))
    for single, double in zip(*results, strict=True):
        torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5 * float(double.abs().max()))


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("quantity", ["nngp", "ntk"])
def test_entry_by_entry_derivative_equals_the_sum_of_backpropagations(quantity, normalise, generator):
    X, Y = torch.randn(4, 3, generator=generator), torch.randn(3, 3, generator=generator)
    found = ResNetKernel(5, 3, 0.7, normalise=normalise).branch_scale_derivative(X, Y, quantity)
    alpha = torch.tensor(0.7, requires_grad=True)
    K = getattr(ResNetKernel(5, 3, alpha, normalise=normalise), quantity)(X, Y)
    for i in range(4):
        for j in range(3):
            (expected,) = torch.autograd.grad(K[i, j], alpha, retain_graph=True)
            assert float(found[i, j]) == pytest.approx(
                float(expected), rel=1e-9, abs=1e-11 * float(K.detach().abs().max())
            )


def test_entry_by_entry_derivative_on_the_diagonal_in_closed_form(generator):
    X = torch.randn(3, 4, generator=generator)
    found = ResNetKernel(5, 2, 0.7).branch_scale_derivative(X).diagonal()
    a, slope = 0.49, 1.4  # a = α² and da/dα
    expected = 2 * 5 * slope * ((1 + a) ** 4 + 4 * a * (1 + a) ** 3)
    torch.testing.assert_close(found, expected * X.square().sum(1) / 4, rtol=1e-12, atol=0)


def test_entry_by_entry_derivative_needs_one_common_scale():
    with pytest.raises(InvalidInputError, match=r"one value for each of 2 blocks.*requires_grad=True"):
        ResNetKernel(2, 2, [0.5, 0.5]).branch_scale_derivative(torch.ones(2, 2))


def test_a_learned_scale_is_read_anew_at_each_call(generator):
    X = torch.randn(3, 2, generator=generator)
    alpha = torch.tensor(0.5, requires_grad=True)
    kernel = ResNetKernel(3, 2, alpha)
    before = kernel.ntk(X).detach()
    with torch.no_grad():
        alpha.fill_(0.8)
        torch.testing.assert_close(kernel.ntk(X), ResNetKernel(3, 2, 0.8).ntk(X))
    torch.testing.assert_close(before, ResNetKernel(3, 2, 0.5).ntk(X))


@pytest.mark.gpu
def test_on_the_gpu_equal_those_on_the_processor(generator):
    X = torch.randn(6, 4, generator=generator)
    results = []
    for device in ("cpu", "cuda"):
        inputs, alpha = X.to(device).requires_grad_(), torch.tensor(0.5, device=device, requires_grad=True)
        K = ResNetKernel(5, 2, alpha).ntk(inputs)
        results.append([g.cpu() for g in torch.autograd.grad(K.square().sum(), (inputs, alpha))])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
