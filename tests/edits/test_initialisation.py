import copy
import math

import pytest
import torch
from torch import nn

from skiplens import zoo
from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.edits import initialisation
from skiplens.zoo import weight_laws
from tests.tolerances import STANDARD_ERRORS, assert_close


@pytest.fixture
def randomness(seed: int) -> Randomness:
    return Randomness(seed).child("test_initialisation")


@pytest.fixture
def network() -> nn.Sequential:
    convolution = nn.Conv2d(3, 40, 3)
    return nn.Sequential(convolution, nn.BatchNorm2d(40), nn.ReLU(), nn.Flatten(), nn.Linear(40, 60))


EVERY_LAW = [initialisation.xavier, initialisation.he, initialisation.orthogonal, initialisation.near_zero]


@pytest.mark.parametrize("law", EVERY_LAW)
class TestEveryLaw:
    def test_leaves_the_given_network_and_the_global_generator_as_they_are(self, law, network, randomness):
        before, state = copy.deepcopy(network.state_dict()), torch.get_rng_state()
        fresh = law(network, randomness)
        assert torch.equal(torch.get_rng_state(), state)
        for name, value in network.state_dict().items():
            assert torch.equal(value, before[name]), name
        assert not torch.equal(fresh[0].weight, network[0].weight)

    def test_same_randomness_same_weights_other_seed_other_weights(self, law, network, randomness):
        first, again, other = (law(network, r)[4].weight for r in (randomness, randomness, Randomness(99)))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_float32_is_the_rounding_of_float64(self, law, network, randomness):
        single = law(copy.deepcopy(network).float(), randomness)
        assert single[0].weight.dtype == torch.float32
        assert torch.equal(single[0].weight, law(network, randomness)[0].weight.float())

    def test_biases_are_zero_and_normalisation_layers_are_copied(self, law, network, randomness):
        network[1].weight.data.fill_(0.3)
        fresh = law(network, randomness)
        assert fresh[0].bias.abs().max() == 0 and fresh[4].bias.abs().max() == 0
        assert torch.equal(fresh[1].weight, network[1].weight)

    def test_refuses_a_network_without_weight_layers(self, law, randomness):
        with pytest.raises(InvalidInputError, match="ReLU has no linear or convolution layer to initialise"):
            law(nn.ReLU(), randomness)


@pytest.mark.parametrize(
    ("law", "variance"),
    [
        (initialisation.xavier, lambda inputs, outputs: 2 / (inputs + outputs)),
        (initialisation.he, lambda inputs, outputs: 2 / inputs),
        (initialisation.near_zero, lambda inputs, outputs: 1e-4 * 2 / (inputs + outputs)),
    ],
)
def test_gaussian_laws_have_their_variance(law, variance, network, randomness):
    fresh = law(network, randomness)
    for weight, inputs, outputs in ((fresh[0].weight, 27, 360), (fresh[4].weight, 40, 60)):
        wanted = variance(inputs, outputs)
        # The mean of n squares of N(0, v) has standard error v sqrt(2/n).
        allowed = STANDARD_ERRORS * wanted * math.sqrt(2 / weight.numel())
        assert abs(weight.square().mean().item() - wanted) < allowed


def test_near_zero_is_a_hundredth_of_xavier(network, randomness):
    small, xavier = initialisation.near_zero(network, randomness), initialisation.xavier(network, randomness)
    assert_close(100 * small[4].weight, xavier[4].weight)


@pytest.mark.parametrize("shape", [(5, 5), (4, 7), (7, 4), (6, 2, 3, 3)])
def test_orthogonal_weights_have_orthonormal_rows_or_columns(shape, generator):
    Q = weight_laws.orthogonal_weights(shape, generator).flatten(1)
    gram = Q @ Q.T if Q.shape[0] <= Q.shape[1] else Q.T @ Q
    assert_close(gram, torch.eye(min(Q.shape)))


def test_orthogonal_weights_are_haar_not_just_what_qr_returns(generator):
    # QR alone fixes the sign of the first entry; under Haar's law it has mean 0 and variance 1/d.
    corner = torch.stack([weight_laws.orthogonal_weights((4, 4), generator)[0, 0] for _ in range(400)])
    assert abs(corner.mean().item()) < STANDARD_ERRORS * math.sqrt(1 / 4 / 400)
    assert abs(corner.square().mean().item() - 1 / 4) < STANDARD_ERRORS * corner.square().std().item() / math.sqrt(400)


def test_a_layer_keeps_its_numbers_when_another_layer_changes(randomness):
    narrow, wide = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4)), nn.Sequential(nn.Linear(9, 3), nn.Linear(3, 4))
    assert torch.equal(initialisation.he(narrow, randomness)[1].weight, initialisation.he(wide, randomness)[1].weight)


class TestZeroBranchEnds:
    def test_each_block_becomes_its_shortcut(self, generator):
        network = zoo.build("shortcut_network", branch_depth=3, initialisation="xavier", width=5, units=4)
        inputs = torch.randn(6, 5, generator=generator)
        zeroed = initialisation.zero_branch_ends(network, zoo.branch_parameters(network))
        assert torch.equal(zeroed(inputs), inputs)
        assert not torch.equal(network(inputs), inputs)

    def test_only_the_last_layer_changes_with_its_bias(self):
        network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        zeroed = initialisation.zero_branch_ends(network, [["0.weight", "0.bias", "1.weight", "1.bias"]])
        assert torch.equal(zeroed[0].weight, network[0].weight)
        assert zeroed[1].weight.abs().max() == 0 and zeroed[1].bias.abs().max() == 0
        assert network[1].weight.abs().max() > 0


class TestScaleBranchEnds:
    @pytest.mark.parametrize("branch_depth", [1, 2, 3])
    @pytest.mark.parametrize("factor", [0.0, 0.3, 4.0])
    def test_each_branch_is_multiplied_by_the_factor(self, branch_depth, factor, generator):
        network = zoo.build("shortcut_network", branch_depth=branch_depth, initialisation="xavier", width=5, units=3)
        inputs = torch.randn(6, 5, generator=generator)
        scaled = initialisation.scale_branch_ends(network, zoo.branch_parameters(network), factor)
        for before, after in zip(network, scaled, strict=True):
            assert_close(after.branch(inputs), factor * before.branch(inputs))

    @pytest.mark.parametrize("factor", [-1.0, float("nan"), float("inf")])
    def test_refuses_a_factor_that_no_branch_can_have(self, factor):
        with pytest.raises(InvalidInputError, match="must be a number of at least 0, got"):
            initialisation.scale_branch_ends(nn.Linear(2, 2), [["weight"]], factor)


class TestRescaleBranches:
    @pytest.mark.parametrize("branch_depth", [1, 2, 3])
    def test_each_branch_keeps_its_share_of_the_power(self, branch_depth, generator):
        network = zoo.build("shortcut_network", branch_depth=branch_depth, initialisation="xavier", width=5, units=7)
        inputs = torch.randn(6, 5, generator=generator)
        rescaled = initialisation.rescale_branches(network, zoo.branch_parameters(network), growth=0.5)
        for before, after in zip(network, rescaled, strict=True):
            # ReLU branches are homogeneous, so the amplitude is multiplied by sqrt(growth / depth) exactly.
            assert_close(after.branch(inputs), math.sqrt(0.5 / 7) * before.branch(inputs))

    def test_refuses_a_growth_that_is_not_positive(self):
        with pytest.raises(InvalidInputError, match="growth must be a positive number, got 0"):
            initialisation.rescale_branches(nn.Linear(2, 2), [["weight"]], growth=0)


@pytest.mark.parametrize("change", [initialisation.zero_branch_ends, initialisation.rescale_branches])
class TestBranchNames:
    def test_an_unknown_parameter_offers_the_nearest_ones(self, change):
        with pytest.raises(InvalidInputError, match=r"no parameter 'wieght'. Did you mean weight\?"):
            change(nn.Linear(2, 2), [["wieght"]])

    @pytest.mark.parametrize("branches", [[], [[]]])
    def test_no_branch_is_an_error(self, change, branches):
        with pytest.raises(InvalidInputError, match="Find them with find_residual_blocks"):
            change(nn.Linear(2, 2), branches)

    def test_the_given_network_is_unchanged(self, change):
        network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        before = copy.deepcopy(network.state_dict())
        change(network, [["0.weight"], ["1.weight"]])
        assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
