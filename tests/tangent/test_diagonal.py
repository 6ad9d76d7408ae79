import copy

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.tangent.empirical import empirical_ntk, ntk_diagonal
from tests.graph.dense_jacobian import dense_jacobian
from tests.networks import noise
from tests.tangent.cases import CASES
from tests.tolerances import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


@pytest.mark.parametrize("name", CASES)
def test_squared_lengths_of_dense_gradients(name):
    model, inputs = CASES[name]()
    lengths = dense_jacobian(model, inputs).square().sum(2)
    assert_close(ntk_diagonal(model, inputs), lengths.sum(1))
    assert_close(ntk_diagonal(model, inputs, outputs="full"), lengths)
    assert_close(ntk_diagonal(model, inputs, outputs=0), lengths[:, 0])


@pytest.mark.parametrize("algorithm", ["jacobian", "rows"])
@pytest.mark.parametrize("budget", [None, 2**13])
def test_other_algorithms_and_less_memory(algorithm, budget):
    model, inputs = CASES["norms"]()
    kernel = empirical_ntk(model, inputs)
    assert_close(ntk_diagonal(model, inputs, algorithm=algorithm, memory=budget), kernel.diagonal())


def test_coupled_batches_are_looked_at_whole():
    model, inputs = CASES["norms"]()
    model.train()
    lengths = dense_jacobian(copy.deepcopy(model), inputs, coupled=True).square().sum((1, 2))
    assert_close(ntk_diagonal(model, inputs), lengths)


def test_progress_counts_samples():
    steps = []
    ntk_diagonal(*CASES["perceptron"](), progress=lambda label, done, total: steps.append((label, done, total)))
    assert steps[-1] == ("tangent kernel diagonal", 5, 5)


def test_products_are_refused():
    with pytest.raises(InvalidInputError, match="algorithm='products' gives whole columns"):
        ntk_diagonal(torch.nn.Linear(3, 2), noise(2, 3), algorithm="products")
