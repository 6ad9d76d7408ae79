import math

import pytest
import torch
from torch import nn

from skiplens.linalg.lanczos import LanczosOptions
from skiplens.tangent.empirical import ntk_condition
from tests.graph.dense_jacobian import dense_kernel
from tests.networks import noise
from tests.tangent.cases import CASES
from tests.tolerances import assert_close


@pytest.mark.parametrize("lanczos", [None, LanczosOptions(), LanczosOptions(block_size=3)], ids=["dense", "1", "3"])
@pytest.mark.parametrize("outputs", ["full", "trace"])
def test_ends_of_the_dense_spectrum(lanczos, outputs):
    model, inputs = CASES["perceptron"]()
    inputs = inputs[:2]
    dense = dense_kernel(model, inputs)
    matrix = dense.reshape(6, 6) if outputs == "full" else torch.einsum("nomo->nm", dense)
    exact = torch.linalg.eigvalsh(matrix)
    found = ntk_condition(model, inputs, outputs=outputs, lanczos=lanczos)
    assert found.converged
    assert_close(torch.tensor([found.smallest, found.largest]), exact[[0, -1]])
    # The relative error of the smallest eigenvalue is the condition number times that of the largest.
    assert math.isclose(found.condition_number, exact[-1] / exact[0], rel_tol=1e-12 * found.condition_number)


@pytest.mark.parametrize("lanczos", [None, LanczosOptions()])
def test_more_outputs_than_parameters_have_no_finite_condition_number(lanczos):
    found = ntk_condition(nn.Linear(2, 1), noise(6, 2), lanczos=lanczos)
    assert found.condition_number == math.inf
    assert found.largest > 0


def test_products_that_do_not_suffice_are_told():
    model, inputs = CASES["sequence"]()
    short = LanczosOptions(basis_size=4, max_products=4)
    assert not ntk_condition(model, inputs, lanczos=short).converged


def test_a_kernel_of_one_row():
    found = ntk_condition(nn.Linear(2, 1), noise(1, 2), lanczos=LanczosOptions())
    assert found.condition_number == 1.0
