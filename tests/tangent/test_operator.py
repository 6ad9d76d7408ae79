import copy

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.graph.functional import pure_model
from skiplens.graph.inputs import samples_of
from skiplens.tangent.products import JacobianProducts, NTKOperator
from tests.budget_calls import least_memory
from tests.graph.dense_jacobian import dense_jacobian, dense_kernel
from tests.networks import noise
from tests.tangent.cases import CASES
from tests.tolerances import assert_close

NAMES = ["perceptron", "norms", "tied_embedding", "attention", "transformer", "recurrent", "frozen_and_unused"]


@pytest.mark.parametrize("name", NAMES)
def test_products_equal_those_of_the_dense_kernel(name):
    model, inputs = CASES[name]()
    dense = dense_kernel(model, inputs)
    size = dense.shape[0] * dense.shape[1]
    block = noise(size, 2)
    assert_close(NTKOperator(model, inputs) @ block, dense.reshape(size, size) @ block)
    summed = torch.einsum("nomo->nm", dense)
    assert_close(NTKOperator(model, inputs, outputs="trace") @ block[: len(dense)], summed @ block[: len(dense)])
    assert_close(NTKOperator(model, inputs, outputs=1).dense(), dense[:, 1, :, 1])


def test_coupled_batches():
    model, inputs = CASES["norms"]()
    model.train()
    before = copy.deepcopy(model.state_dict())
    dense = dense_kernel(copy.deepcopy(model), inputs, coupled=True)
    assert_close(NTKOperator(model, inputs).dense(), dense.reshape(8, 8))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_small_budgets_go_through_samples_one_by_one():
    model, inputs = CASES["norms"]()
    operator = NTKOperator(model, inputs, memory=least_memory(lambda m: NTKOperator(model, inputs, memory=m)))
    assert operator._products.chunk == 1
    assert_close(operator.dense(), dense_kernel(model, inputs).reshape(8, 8))


@pytest.mark.parametrize("name", NAMES)
def test_forward_products_with_and_without_forward_mode(name, monkeypatch):
    model, inputs = CASES[name]()
    pure, samples = pure_model(model), samples_of(inputs)
    direction = {key: noise(*p.shape, seed=3) for key, p in pure.parameters.items()}
    flat = torch.cat([d.flatten() for d in direction.values()])
    products = JacobianProducts(pure, coupled=False, chunk=2)
    expected = dense_jacobian(model, inputs) @ flat
    assert_close(products.forward(samples, direction), expected)
    monkeypatch.setattr("skiplens.tangent.products.jvp", _no_forward_mode)
    assert_close(products.forward(samples, direction), expected)


def _no_forward_mode(*arguments):
    raise NotImplementedError("no forward-mode formula")


def test_shape_is_checked_at_the_door():
    operator = NTKOperator(*CASES["perceptron"]())
    assert (operator.size, operator.dtype, operator.device.type) == (15, torch.float64, "cpu")
    with pytest.raises(InvalidInputError, match="size 15 got a tensor of shape"):
        operator @ torch.ones(5)
