"""Every way to write a join is found, and no other addition is."""

import pytest
import torch

from skiplens.graph.dissect import dissect, find_residual_blocks
from skiplens.graph.network import part_function
from tests.graph.join_cases import NO_JOINS, WAYS_TO_JOIN, image, projected, resnet
from tests.graph.join_cases_of_families import NONE_OF_FAMILIES, WAYS_OF_FAMILIES
from tests.networks import Formula, linear, mlp, noise
from tests.tolerances import assert_close

WAYS = WAYS_TO_JOIN | WAYS_OF_FAMILIES
NONE = NO_JOINS | NONE_OF_FAMILIES


@pytest.fixture(scope="module", params=WAYS)
def dissected(request):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # the fixture outlives the one that sets it for each test
    case = WAYS[request.param]
    network = dissect(case.build(), case.inputs)
    torch.set_default_dtype(before)
    return case, network


def test_finds_every_way_to_write_a_join(dissected):
    case, network = dissected
    assert [(b.name, b.shortcut.kind, b.branch_depth) for b in network.blocks] == case.blocks
    assert network.kind == "residual"


@pytest.mark.parametrize("name", NONE)
def test_takes_no_other_addition_for_a_join(name):
    case = NONE[name]
    network = dissect(case.build(), case.inputs)
    assert network.blocks == []
    assert network.kind == "chain"


def test_runs_each_network_to_the_same_bits_as_the_model(dissected):
    case, network = dissected
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ours = network.outputs()["output"]
        torch.manual_seed(0)
        assert torch.equal(ours, network.model(*case.inputs))


def test_splits_each_block_into_shortcut_and_branch(dissected):
    _, network = dissected
    for block in network.blocks:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            values = network.run([block.input, block.join])
            parts = {}
            for part in ("block", "shortcut", "branch"):
                torch.manual_seed(0)  # dropout draws the same mask each time
                parts[part] = part_function(network, block, part)(values[block.input])
        assert torch.equal(parts["block"], values[block.join])
        assert_close(
            torch.view_as_real(parts["shortcut"] + parts["branch"] + 0j), torch.view_as_real(values[block.join] + 0j)
        )
        if block.shortcut.kind == "identity" and not block.shortcut.nodes:
            assert torch.equal(parts["shortcut"], values[block.input])


def test_a_sum_of_branches_is_one_block_with_an_addition_for_each_branch():
    case = WAYS_TO_JOIN["sum of a list"]
    (block,) = find_residual_blocks(case.build(), case.inputs)
    assert [(a.shortcut_argument, a.branch_arguments) for a in block.additions] == [(0, (1,)), (0, (1,))]
    assert block.additions[-1].node == block.join
    assert block.branch.parameters == ("f.weight", "f.bias", "g.weight", "g.bias")


def test_the_input_of_a_gated_block_is_the_state_and_not_the_gate():
    """The gate reads a second input as well, so not every way to it leads through the state."""

    def rule(m, state, other):
        gate = torch.sigmoid(m.gate(state * other))
        return state * (1 - gate) + m.f(state) * gate

    network = dissect(Formula(rule, gate=linear(), f=linear()), (noise(2, 3), noise(2, 3, seed=1)))
    assert [block.input for block in network.blocks] == [network.exported.inputs[0]]


def test_doubling_after_a_join_is_not_part_of_it():
    def rule(m, x):
        joined = x + m.f(x)
        return joined + joined

    network = dissect(Formula(rule, f=linear()), noise(2, 3))
    (block,) = network.blocks
    assert network.node(network.output).all_input_nodes == [network.node(block.join)]


def test_a_nested_block_knows_its_parent():
    case = WAYS_TO_JOIN["nested behind a nonlinearity"]
    inner, outer = find_residual_blocks(case.build(), case.inputs)
    assert (inner.parent, outer.parent) == (1, None)
    assert set(inner.branch.nodes) < set(outer.branch.nodes)


def test_no_stream_of_a_reversible_network_is_inside_the_other():
    def reversible(m, x):
        left, right = x, x
        for f, g in ((m.f, m.g), (m.h, m.k)):
            left = left + f(right)
            right = right + g(left)
        return torch.cat([left, right], -1)

    blocks = find_residual_blocks(Formula(reversible, f=linear(), g=linear(), h=linear(), k=linear()), noise(2, 3))
    assert [block.parent for block in blocks] == [None] * 4


def test_tells_input_join_and_shapes_of_a_block():
    network = dissect(resnet(projected)(), image())
    block = network.blocks[1]
    assert (block.input_shape, block.output_shape) == ((2, 4, 8, 8), (2, 8, 4, 4))
    assert network.node(block.input).name == "relu_1"  # the ReLU after the first join
    assert block.shortcut.modules == ("1.shortcut.0", "1.shortcut.1")
    assert block.branch.modules == ("1.conv1", "1.bn1", "1.relu", "1.conv2", "1.bn2")
    assert str(block) == "1 1: projection shortcut, 2 weight matrices in the branch, 952 parameters"


def test_lists_the_modules_that_are_wholly_in_the_branch():
    blocks = find_residual_blocks(resnet(projected)(), image())
    # the ReLU also runs after the join, so replacing it would not replace the branch alone
    assert blocks[0].branch.whole_modules == ("0.conv1", "0.bn1", "0.conv2", "0.bn2")
    whole = find_residual_blocks(Formula(lambda m, x: x + m.f(x), f=mlp()), noise(2, 3))[0].branch
    assert (whole.modules, whole.whole_modules) == (("f.0", "f.1", "f.2"), ("f",))


def test_a_weight_that_the_addition_multiplies_belongs_to_the_branch():
    for name, owned in {
        "fused product": ("f.weight", "f.bias", "w"),
        "fused product with the only weight": ("w",),
    }.items():
        case = WAYS_TO_JOIN[name]
        (block,) = find_residual_blocks(case.build(), case.inputs)
        assert set(block.branch.parameters) == set(owned) and block.shortcut.parameters == ()
    case = WAYS_TO_JOIN["fused products on both sides"]
    (block,) = find_residual_blocks(case.build(), case.inputs)
    assert (block.shortcut.parameters, block.branch.parameters, block.parameters) == (("v",), ("w",), 18)
