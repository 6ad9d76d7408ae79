"""Wide finite modules, drawn many times, scatter around the limit."""

import pytest
import torch

from skiplens.kernels import infinite_width
from tests.kernels.limit.cases import BIAS, CASES, FEATURES, WEIGHT, draw, make, typical

INPUTS = torch.tensor(
    [[1.0, -0.5, 2.0, 0.3, -1.2, 0.8], [0.9, 0.7, -0.4, 1.1, 0.2, -1.5], [0.1, -0.2, 0.4, 0, 0.3, 0]]
).double()


def within_four_errors(draws, wanted, bias):
    """Whether the mean is within four standard errors and what a finite width may shift it by."""
    mean, error = draws.mean(dim=0), draws.std(dim=0) / len(draws) ** 0.5
    assert ((mean - wanted).abs() <= 4 * error + bias * wanted.abs().max()).all(), (mean, wanted, error)
    assert (4 * error).max() < 0.25 * wanted.abs().max()  # or the draws would decide nothing


@pytest.mark.parametrize("name", CASES)
def test_covariance_of_drawn_modules(name):
    torch.manual_seed(5)  # of the masks of dropout
    model, generator = make(name), torch.Generator().manual_seed(3)
    wanted = infinite_width(typical(model), INPUTS).nngp(INPUTS)
    found = []
    for _ in range(24):
        draw(model, generator)
        with torch.no_grad():
            outputs = model(INPUTS)
        found.append(outputs @ outputs.T / outputs.shape[1])
    within_four_errors(torch.stack(found), wanted, bias=1 / 256)


def gradients(model):
    """The two tangent kernels, averaged over the outputs, by one backward pass per sample and output."""
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    standard, scaled = torch.zeros(2, 3, 3).double()
    outputs = model(INPUTS)
    for output in outputs.T:
        rows = [
            torch.autograd.grad(value, [model.get_parameter(n) for n in names], retain_graph=True, allow_unused=True)
            for value in output
        ]
        for name, column in zip(names, zip(*rows, strict=True), strict=True):
            if column[0] is not None:
                part = torch.stack([gradient.flatten() for gradient in column])
                size = model.get_parameter(name).shape[-1]
                variance = BIAS**2 if name.endswith("bias") else WEIGHT**2 / size
                standard += part @ part.T / outputs.shape[1]
                scaled += variance * part @ part.T / outputs.shape[1]
    return standard, scaled


@pytest.mark.parametrize("name", CASES)
def test_tangent_kernel_of_drawn_modules(name):
    torch.manual_seed(6)  # of the masks of dropout
    model, generator = make(name, outputs=2), torch.Generator().manual_seed(4)
    wanted = [infinite_width(typical(model), INPUTS, parameterisation=way).ntk(INPUTS) for way in ("standard", "ntk")]
    found = []
    for _ in range(16):
        draw(model, generator)
        found.append(gradients(model))
    for draws, limit in zip(zip(*found, strict=True), wanted, strict=True):
        within_four_errors(torch.stack(draws), limit, bias=1 / 256)


def test_inputs_have_the_features_of_the_cases():
    assert INPUTS.shape[1] == FEATURES
