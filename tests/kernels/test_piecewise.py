import numpy as np
import torch

from skiplens.kernels.tables import piecewise_polynomial


def example(generator, entries=7):
    coefficients = torch.randn(4, 3, generator=generator)
    return (
        torch.rand(entries, generator=generator) * 2 - 1,
        torch.randint(3, (entries,), generator=generator),
        coefficients,
    )


def test_values_against_numpy(generator):
    place, piece, coefficients = example(generator)
    columns = coefficients.T[piece].numpy()
    expected = [np.polynomial.polynomial.polyval(float(x), c) for x, c in zip(place, columns, strict=True)]
    torch.testing.assert_close(piecewise_polynomial(place, piece, coefficients), torch.tensor(expected))


def test_first_and_second_derivatives(generator):
    place, piece, coefficients = example(generator)
    inputs = place.requires_grad_(), coefficients.requires_grad_()

    def function(place, coefficients):
        return piecewise_polynomial(place, piece, coefficients)

    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


def test_a_constant_has_the_derivative_zero():
    place = torch.tensor([0.5], requires_grad=True)
    piecewise_polynomial(place, torch.tensor([0]), torch.ones(1, 1)).sum().backward()
    assert float(place.grad) == 0


def test_any_shape(generator):
    place, piece, coefficients = example(generator, 6)
    flat = piecewise_polynomial(place, piece, coefficients)
    assert torch.equal(piecewise_polynomial(place.view(2, 3), piece.view(2, 3), coefficients), flat.view(2, 3))
