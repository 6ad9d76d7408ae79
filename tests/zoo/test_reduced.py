import math

import pytest
import torch
from torch import Tensor

from skiplens import zoo
from skiplens.base.errors import InvalidInputError
from tests.tolerances import assert_close
from tests.zoo.small_networks import sines

X = sines(5, 4)
N = 6


def q(y: Tensor) -> Tensor:
    return math.sqrt(2) * y.clamp(min=0)


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_resnet_drops_the_shortcut_of_one_block(layer):
    network = zoo.build("tangent_resnet", depth=3, branch_scale=0.6, width=N, input_features=4)
    first, *matrices, last = (p.detach() for p in network.parameters())
    y = X @ first.T / 2
    for block in range(1, 4):
        inner, outer = matrices[2 * block - 2 : 2 * block]
        v = math.sqrt(0.6 / N) * q(math.sqrt(0.6 / N) * y @ inner.T) @ outer.T
        y = v if block == layer else y + v
    reduced = zoo.reduced_network(network, layer)
    assert_close(reduced(X).detach(), y @ last.T / math.sqrt(N))


def densenet_by_hand(parameters: list[Tensor], layer: int, matrix: int | None) -> Tensor:
    """f_(k) of the theory note, section 1, with the blocks W^{l,h} as a table."""
    first, *layers, last = parameters
    blocks = {(j, h): W for j, W_j in enumerate(layers, start=1) for h, W in enumerate(W_j.split(N, dim=1))}
    ys = [X @ first.T / 2]
    for j in range(1, len(layers) + 1):
        read = list(range(j)) if j <= layer else list(range(layer, j))
        if j == layer and matrix is not None:
            read = [matrix]
        ys.append(sum(q(ys[h]) @ blocks[j, h].T for h in read) / math.sqrt(N * j))
    return ys[-1] @ last.T / math.sqrt(N)


READINGS = [(layer, matrix) for layer in range(1, 5) for matrix in (None, *range(layer))]


@pytest.mark.parametrize(("layer", "matrix"), READINGS)
def test_densenet_in_both_readings(layer, matrix):
    network = zoo.build("tangent_densenet", depth=4, width=N, input_features=4)
    expected = densenet_by_hand([p.detach() for p in network.parameters()], layer, matrix)
    assert_close(zoo.reduced_network(network, layer, matrix)(X).detach(), expected)


@pytest.mark.parametrize("layer", [1, 2, 3, 4])
def test_the_matrix_readings_of_the_last_layer_add_up_to_the_layer_reading(layer):
    network = zoo.build("tangent_densenet", depth=layer, width=N, input_features=4)
    parts = [zoo.reduced_network(network, layer, h)(X) for h in range(layer)]
    assert_close(sum(parts), zoo.reduced_network(network, layer)(X))
    assert_close(sum(parts), network(X))


def test_vanilla_is_its_own_reduced_network():
    network = zoo.build("tangent_vanilla", depth=3, width=N, input_features=4)
    assert torch.equal(zoo.reduced_network(network, 2)(X), network(X))


@pytest.mark.parametrize("name", ["tangent_resnet", "tangent_densenet", "tangent_vanilla"])
def test_weights_are_shared_and_the_network_stays_as_it_is(name):
    network = zoo.build(name, depth=3, width=N, input_features=4)
    before = network(X).detach()
    reduced = zoo.reduced_network(network, 2)
    pairs = zip(network.parameters(), reduced.parameters(), strict=True)
    assert all(left is right for left, right in pairs)
    assert torch.equal(network(X), before)


@pytest.mark.parametrize("layer", [0, 4])
@pytest.mark.parametrize("name", ["tangent_resnet", "tangent_densenet"])
def test_a_layer_that_is_not_there_is_refused(name, layer):
    with pytest.raises(InvalidInputError, match=f"layer must be from 1 to 3; got {layer}"):
        zoo.reduced_network(zoo.build(name, depth=3, width=N), layer)


def test_a_matrix_that_is_not_there_is_refused():
    with pytest.raises(InvalidInputError, match="matrix must be from 0 to 1 for layer 2; got 2"):
        zoo.reduced_network(zoo.build("tangent_densenet", depth=3, width=N), 2, 2)


def test_only_a_densenet_has_matrices_to_choose_from():
    with pytest.raises(InvalidInputError, match=r"Only a DenseNet has blocks .* leave out matrix=1"):
        zoo.reduced_network(zoo.build("tangent_resnet", depth=3, width=N), 2, 1)


def test_other_networks_have_no_reduced_networks():
    with pytest.raises(InvalidInputError, match=r"Only tangent_resnet, .* got one of \['first', 'blocks'\]"):
        zoo.reduced_network(zoo.build("guaranteed_resnet"), 1)
