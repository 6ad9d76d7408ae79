import gc
import weakref

import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.graph.dissect import dissect
from skiplens.graph.export import grouped_product
from skiplens.graph.network import node_bytes, part_function, plain_call
from tests.networks import CrossAttending, Formula, LinearResidual, PostActivation, linear, noise
from tests.tolerances import assert_close


@pytest.fixture
def network():
    return dissect(LinearResidual(depth=3, scale=0.5), noise(2, 3))


def test_reads_the_live_parameters(network):
    with torch.no_grad():
        network.model.layers[1].weight.mul_(2)
    assert torch.equal(network.outputs()["output"], network.model(noise(2, 3)))


def test_runs_on_other_inputs_of_the_same_shape(network):
    other = noise(2, 3, seed=1)
    assert torch.equal(network.outputs(other)["output"], network.model(other))


@pytest.mark.parametrize("other", [(3, 3), (2, 3)])
def test_refuses_to_run_on_inputs_of_another_form(network, other):
    inputs = noise(*other, dtype=torch.float64 if other == (3, 3) else torch.float32)
    with pytest.raises(
        InvalidInputError, match=r"taken apart with float64 tensor of shape \(2, 3\) .* take the model apart"
    ):
        network.outputs(inputs)


def test_runs_from_a_given_value_in_the_middle(network):
    """From the second block on, the output is (I + W₃/2)(I + W₂/2) v in closed form."""
    value = noise(2, 3, seed=2)
    given = {network.blocks[1].input: value}
    identity = torch.eye(3)
    _, second, third = (identity + 0.5 * layer.weight for layer in network.model.layers)
    assert_close(network.run([network.output], given)[network.output], value @ second.T @ third.T)


def test_lets_gradients_flow_to_parameters_and_inputs(network):
    inputs = noise(2, 3).requires_grad_()
    weight = network.model.layers[0].weight
    ours = torch.autograd.grad(network.outputs(inputs)["output"].sum(), [inputs, weight])
    theirs = torch.autograd.grad(network.model(inputs).sum(), [inputs, weight])
    for left, right in zip(ours, theirs, strict=True):
        assert torch.equal(left, right)


def test_leaves_running_statistics_alone_in_train_mode():
    model = PostActivation(3, 3).train()
    network = dissect(model, noise(2, 3, 4, 4))
    network.outputs()
    assert torch.equal(model.bn1.running_mean, torch.zeros(3))
    assert model.bn1.num_batches_tracked == 0


def test_names_the_outputs_of_a_mapping_and_finds_the_main_one():
    def rule(m, x):
        h = m.f(x)
        return {"choice": h.argmax(-1), "logits": h, "states": (x, [h, None, "text"])}

    network = dissect(Formula(rule, f=linear()), noise(2, 3))
    assert list(network.exported.outputs) == ["choice", "logits", "states.0", "states.1.0"]
    assert network.output == network.exported.outputs["logits"]
    for name, value in network.outputs().items():
        assert torch.equal(value, dict(named(network.model(noise(2, 3))))[name])


def named(output):
    yield "choice", output["choice"]
    yield "logits", output["logits"]
    yield "states.0", output["states"][0]
    yield "states.1.0", output["states"][1][0]


def test_takes_the_only_output_when_none_is_floating():
    network = dissect(Formula(lambda m, x: m.f(x).argmax(-1), f=linear()), noise(2, 3))
    assert network.output == network.exported.outputs["output"]


def test_lists_its_nodes_in_execution_order_with_their_modules():
    network = dissect(nn.Sequential(linear(), nn.ReLU()), noise(2, 3))
    cards = [(card.operation, card.module, card.shape) for card in network.cards if card.operation.startswith("aten")]
    assert cards == [("aten.linear", "0", (2, 3)), ("aten.relu", "1", (2, 3))]
    assert network.cards[-2].reads == (network.cards[-3].name,)


def test_finds_nodes_and_blocks_by_name_or_offers_the_nearest(network):
    assert network.block("layers.1") is network.blocks[1]
    with pytest.raises(InvalidInputError, match=r"no block 'layer.1'. Did you mean layers\.\d"):
        network.block("layer.1")
    with pytest.raises(InvalidInputError, match=r"no node 'ad'. Did you mean add"):
        network.run(["ad"])


def test_carries_out_operations_as_told(network):
    """Doubling each matrix product doubles W in the closed form."""

    def doubling(node, arguments, keywords):
        value = plain_call(node, arguments, keywords)
        return 2 * value if str(node.target) == "aten.linear.default" else value

    expected = noise(2, 3)
    for layer in network.model.layers:
        expected = expected + expected @ layer.weight.T
    assert_close(network.run([network.output], call=doubling)[network.output], expected)


def test_computes_nothing_that_is_not_needed(network):
    seen = []

    def counting(node, arguments, keywords):
        seen.append(node.name)
        return plain_call(node, arguments, keywords)

    block = network.blocks[2]
    network.run([block.join], {block.input: noise(2, 3)}, call=counting)
    assert seen == [*block.branch.nodes, block.join]


@pytest.mark.slow
def test_forgets_values_that_nothing_needs_any_more(network):
    values, most = [], 0

    def watching(node, arguments, keywords):
        nonlocal most
        value = plain_call(node, arguments, keywords)
        values.append(weakref.ref(value))
        gc.collect()
        most = max(most, sum(one() is not None for one in values))
        return value

    with torch.no_grad():
        network.run([network.output], call=watching)
    assert most == 3  # the stream, the branch and what is made of them; nine operations ran in all
    assert len(values) == 9


def test_a_part_of_a_block_takes_what_it_needs_from_elsewhere():
    """The Jacobian of a cross-attention block in its stream, against autograd through the written-out module."""
    model, context = CrossAttending(), noise(1, 6, 4, seed=1)
    network = dissect(model, (noise(1, 5, 4), context))
    value = noise(1, 5, 4, seed=2)
    branch = torch.autograd.functional.jacobian(part_function(network, network.blocks[1], "branch"), value)
    assert_close(branch, torch.autograd.functional.jacobian(lambda x: model.cross_attention(x, context), value))


def test_the_parts_of_a_linear_block_have_the_jacobians_of_the_formula(network):
    W = network.model.layers[1].weight.detach()
    expected = {"shortcut": torch.eye(3), "branch": 0.5 * W, "block": torch.eye(3) + 0.5 * W}
    for part, matrix in expected.items():
        function = part_function(network, network.blocks[1], part)
        jacobian = torch.autograd.functional.jacobian(lambda x: function(x).sum(0), noise(2, 3))  # noqa: B023 - used at once
        assert_close(jacobian[:, 0], matrix)


def test_a_write_in_place_has_all_derivatives_in_the_graph():
    def write(m, x):
        y = torch.zeros(*x.shape, dtype=x.dtype)
        y[:, 0] = m.f(x)[:, 0]
        y[:, 1:] = m.g(x)[:, 1:].square()
        return x + y

    network = dissect(Formula(write, f=linear(), g=linear()), noise(2, 3))
    assert not [card.name for card in network.cards if card.operation == "aten.copy"]
    x = noise(2, 3)
    jacobian = torch.autograd.functional.jacobian
    graph = jacobian(lambda value: network.run([network.output], inputs=value)[network.output], x)
    assert_close(graph, jacobian(network.model, x))


def test_products_of_groups_are_those_of_each_group_alone():
    rows, matrices, ends = noise(7, 3), noise(3, 3, 5, seed=1), torch.tensor([2, 2, 6])  # one empty, one row left over
    by_hand = torch.cat([rows[:2] @ matrices[0], rows[2:6] @ matrices[2], torch.zeros(1, 5, dtype=rows.dtype)])
    assert_close(grouped_product(rows, matrices, ends), by_hand)
    assert grouped_product(rows, matrices[0], None) is NotImplemented


def test_a_size_that_depends_on_the_data_is_counted_as_one():
    network = dissect(Formula(lambda m, x: x + m.f(x) * torch.nonzero(x).sum(), f=linear()), noise(2, 3))
    (rows,) = (node for node in network.graph.nodes if "nonzero" in node.name)
    assert node_bytes(rows) == 2 * 8 and node_bytes(network.node(network.output)) == 2 * 3 * 8
