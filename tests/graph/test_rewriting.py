"""A graph that is written anew is the one that torch makes by tracing the model again."""

import warnings

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from skiplens.graph.dissect import find_residual_blocks
from skiplens.graph.export import module_calls
from skiplens.graph.rewriting import rewritten
from tests.networks import Formula


def adds_in_place(m, x):
    y = m.norm(m.conv(x))
    y += x
    y.relu_()
    return y * 2


def rearranges(m, x):
    y = m.conv(x).permute(0, 2, 3, 1)
    y = y.reshape(4, -1) + y.contiguous().flatten(1) + y.transpose(1, 2).flatten(1, 3)
    left, right = F.dropout(y, 0.5, training=False).chunk(2, dim=1)
    return F.dropout(left * right, 0.5, training=False, inplace=True), y.flatten(0, 0)


def converts(m, x):
    y = x.to(torch.float32).to(x.device, torch.float64) * torch.tensor(2.0)
    return y.to(torch.float32).to(x.dtype) + y.mean(0, keepdim=True).expand_as(y) + x.to(y.device)


def stays(m, x):
    keep = (x > 0) & (x < 1)
    first, *_ = torch.split(m.norm(x), 2)
    return F.layer_norm(input=first, normalized_shape=(6,)), keep.any(dim=1), F.pad(x, (1, 1), value=0.0)


KNOWN = [adds_in_place, rearranges, converts, stays]


def writes_to_a_view(m, x):
    y = m.conv(x)
    y[:, 0].mul_(2)
    return y


def views_what_was_written(m, x):
    y = m.conv(x)
    first = y.transpose(1, 2)
    y.add_(1)
    return y + first.transpose(1, 2)


def writes_to_its_input(m, x):
    return m.conv(x.mul_(2))


def writes_to_its_weight(m, x):
    m.conv.weight.mul_(0.9)
    return m.conv(x)


def promotes(m, x):
    return m.conv(x).float().add_(x)


def drops(m, x):
    return F.dropout(m.conv(x), 0.5, training=True)


def norms_without_statistics(m, x):
    return F.batch_norm(x, None, None, training=True)


def multiplies_composite_views(m, x):
    return m.conv(x).unflatten(1, (2, -1))


def orders_its_memory(m, x):
    return m.conv(x).contiguous(memory_format=torch.channels_last)


def orders_while_it_converts(m, x):
    return m.conv(x).to(torch.float32, memory_format=torch.channels_last)


UNKNOWN = [
    orders_its_memory,
    orders_while_it_converts,
    writes_to_a_view,
    views_what_was_written,
    writes_to_its_input,
    writes_to_its_weight,
    promotes,
    drops,
    norms_without_statistics,
    multiplies_composite_views,
]


def program_of(rule, training=False):
    model = Formula(rule, conv=nn.Conv2d(4, 4, 3, padding=1), norm=nn.BatchNorm2d(4)).train(training)
    with torch.no_grad():
        return torch.export.export(model, (torch.rand(4, 4, 6, 6),), strict=False)


def described(graph):
    """What comes in, then every operation in order: what it computes of what, where it ran and what it returns."""
    nodes = sorted(graph.nodes, key=lambda node: node.name if node.op == "placeholder" else "~")
    return [(node.name, node.target, name_args(node), module_calls(node), form(node)) for node in nodes]


def name_args(node):
    return str(fx.node.map_arg((node.args, dict(node.kwargs)), lambda source: source.name))


def form(node):
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else [value]
    return [(entry.shape, entry.stride(), entry.dtype) for entry in values if isinstance(entry, torch.Tensor)]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("rule", KNOWN)
def test_is_the_graph_that_torch_traces(rule, training):
    program = program_of(rule, training)
    graph = rewritten(program, ())
    assert graph is not None
    graph.lint()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own
        traced = program.run_decompositions({}).graph
    assert described(graph) == described(traced)


@pytest.mark.parametrize("rule", UNKNOWN)
def test_leaves_what_has_no_rule_to_torch(rule):
    assert rewritten(program_of(rule), ()) is None


def test_leaves_what_it_is_told_to_leave():
    assert rewritten(program_of(adds_in_place), [torch.ops.aten.conv2d.default]) is None


def test_calls_a_model_whose_positions_may_be_too_many():
    def placed(m, x):
        return x + m.table(torch.arange(x.shape[1]))

    model = Formula(placed, table=nn.Embedding(3, 2))
    assert len(find_residual_blocks(model, torch.ones(1, 3, 2))) == len(
        find_residual_blocks(model, torch.ones(2, 3, 2))
    )
    with pytest.raises(ValueError, match="IndexError: index out of range"):
        find_residual_blocks(model, torch.ones(1, 4, 2))


def test_does_not_call_a_model_that_its_export_shows_to_work():
    calls = []

    class Counting(nn.Linear):
        def forward(self, x):
            calls.append(isinstance(x, torch._subclasses.FakeTensor) or x.is_meta)
            return x + super().forward(x)

    assert len(find_residual_blocks(Counting(3, 3), torch.ones(2, 3))) == 1
    assert calls == [True]
