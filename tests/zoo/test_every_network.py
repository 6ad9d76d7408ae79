import copy

import numpy as np
import pytest
import torch

from skiplens import zoo
from skiplens.base.randomness import Randomness
from skiplens.graph.dissect import find_residual_blocks
from skiplens.zoo.layers import count_joins
from skiplens.zoo.li2016 import matrices
from tests.zoo.small_networks import SMALL, sines

NAMES = zoo.names()


def small(name: str, seed: int = 0) -> torch.nn.Module:
    return zoo.build(name, seed, **SMALL.get(name, {}))


def inputs_for(name: str) -> torch.Tensor:
    entry = zoo.entry(name)
    return sines(3, *entry.settings(SMALL.get(name, {})).input_shape())


@pytest.mark.parametrize("name", NAMES)
class TestEveryNetwork:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_runs_forward_and_backward(self, name, dtype):
        network = small(name).to(dtype)
        outputs = network(inputs_for(name).to(dtype))
        assert outputs.dtype == dtype and outputs.isfinite().all()
        outputs.square().sum().backward()
        for parameter, value in network.named_parameters():
            assert value.grad is not None and value.grad.isfinite().all(), parameter

    def test_same_seed_same_weights_other_seed_other_weights(self, name):
        first, again, other = (small(name, seed).state_dict() for seed in (0, 0, 1))
        assert all(torch.equal(first[key], again[key]) for key in first)
        assert any(not torch.equal(first[key], other[key]) for key in first)

    def test_float32_weights_are_the_rounding_of_the_float64_ones(self, name):
        double = small(name)
        torch.set_default_dtype(torch.float32)
        single = small(name)
        for key, value in single.state_dict().items():
            assert torch.equal(value, double.state_dict()[key].to(value.dtype)), key

    def test_touches_no_global_generator(self, name):
        torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 - it must not move
        small(name)
        assert torch.equal(torch.get_rng_state(), torch_state)
        assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002 - it must not move

    def test_is_built_on_the_default_device(self, name):
        with torch.device("meta"):
            network = small(name)
        assert {tensor.device.type for tensor in network.state_dict().values()} <= {"meta"}

    def test_torch_export_accepts_it_in_eval_mode(self, name):
        network, inputs = small(name).eval(), inputs_for(name)
        exported = torch.export.export(network, (inputs,), strict=False)
        assert torch.equal(exported.module()(inputs), network(inputs))

    def test_its_joins_are_those_that_the_graph_shows(self, name):
        network = small(name).eval()
        assert count_joins(network) == len(find_residual_blocks(network, inputs_for(name)))

    def test_inputs_stay_as_they_were(self, name):
        inputs = inputs_for(name)
        before = inputs.clone()
        small(name)(inputs)
        assert torch.equal(inputs, before)

    def test_a_copy_computes_the_same(self, name):
        network, inputs = small(name).eval(), inputs_for(name)
        assert torch.equal(copy.deepcopy(network)(inputs), network(inputs))

    def test_parameters_hold_drawn_numbers_not_leftover_memory(self, name):
        # Uninitialised memory shows as weights of absurd size, or as whole tensors that no law filled.
        for key, value in small(name).named_parameters():
            assert value.isfinite().all() and value.abs().max() < 10, key


STREAMS = {
    "mnist": ["mnist_chain", "mnist_residual", "mnist_residual_avgpool", "mnist_residual_isopool"],
    "resnet18": ["preact_resnet18", "preact_resnet18_avgskip", "preact_resnet18_isoskip"],
    "resnet50": ["preact_resnet50", "preact_resnet50_avgskip"],
    "shortcut": ["shortcut_linear", "shortcut_network"],
}


def test_shortcut_networks_have_the_same_matrices_whatever_lies_between():
    linear, network = (matrices(small(name)) for name in STREAMS["shortcut"])
    assert len(linear) == 16
    assert all(torch.equal(left, right) for left, right in zip(linear, network, strict=True))


@pytest.mark.parametrize("family", ["mnist", "resnet18", "resnet50"])
def test_networks_that_a_paper_compares_have_the_same_weights(family):
    states = [small(name).state_dict() for name in STREAMS[family]]
    for state in states[:-1]:
        shared = [key for key in state if key in states[-1] and "filters" not in key]
        assert shared == [key for key in state if "filters" not in key]
        assert all(torch.equal(state[key], states[-1][key]) for key in shared)


def test_different_networks_draw_from_different_streams():
    streams = {name: zoo.entry(name).stream or name for name in NAMES}
    families = {name: family for family, members in STREAMS.items() for name in members}
    for name in NAMES:
        for other in NAMES:
            same_family = name == other or (name in families and families[name] == families.get(other))
            assert (streams[name] == streams[other]) == same_family, (name, other)


def test_a_seed_and_its_randomness_are_the_same():
    by_seed, by_randomness = zoo.build("shortcut_linear", 3), zoo.build("shortcut_linear", Randomness(3))
    assert torch.equal(by_seed[0].branch[0].weight, by_randomness[0].branch[0].weight)
