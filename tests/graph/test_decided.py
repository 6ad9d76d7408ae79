"""Models whose forward pass decides by values: the graph is that of the way that these samples take."""

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.base.errors import NotExportableError
from skiplens.graph.dissect import dissect
from skiplens.jacobians.reading import JacobianSpectrum
from skiplens.signal.structure import DECIDED, StructureReading
from tests.networks import Formula, drawn, linear, mlp, noise
from tests.tolerances import assert_close


class EarlyExit(nn.Module):
    """Leaves its blocks when the signal is large."""

    def __init__(self, size):
        super().__init__()
        self.blocks, self.size = nn.ModuleList(mlp(3) for _ in range(4)), size

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
            if x.abs().max() > self.size:
                break
        return x


@pytest.mark.parametrize(("size", "blocks"), [(1e6, 4), (0.0, 1)])
def test_the_graph_takes_the_way_of_these_samples(size, blocks):
    model, inputs = drawn(EarlyExit(size)), noise(6, 3)
    network = dissect(model, inputs)
    assert len(network.blocks) == blocks and network.exported.decided
    assert_close(network.run([network.output])[network.output], model(inputs))
    names = {node.name for node in network.graph.nodes}
    assert not any("item" in name or "assert" in name for name in names)


def test_every_lens_looks_at_it_and_what_is_assumed_is_told():
    report = sl.inspect(
        drawn(EarlyExit(1e6)), (noise(6, 3), torch.arange(6) % 3), lenses=["paths", "jacobians", "tangent"]
    )
    assert report.problems == () and DECIDED in report.reading(StructureReading).notes
    plain = sl.inspect(drawn(mlp(3)), (noise(6, 3), torch.arange(6) % 3), lenses=["structure"])
    assert DECIDED not in plain.reading(StructureReading).notes


def test_a_mask_for_torchs_own_transformer_is_no_obstacle():
    """It asks whether the mask is causal, by its values."""
    model = nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True).double()
    mask = model.generate_square_subsequent_mask(5, dtype=torch.float64)
    network = dissect(model, {"src": noise(2, 3, 4), "tgt": noise(2, 5, 4), "tgt_mask": mask})
    assert len(network.blocks) == 5


def test_parameters_of_a_distribution_are_not_checked_in_the_graph():
    model = Formula(lambda m, x: torch.distributions.Normal(m.f(x), m.f(x).exp()).stddev + x, f=linear())
    before = torch.distributions.Distribution._validate_args
    assert not dissect(model, noise(2, 3)).exported.decided
    assert torch.distributions.Distribution._validate_args is before


def test_a_value_that_is_read_is_a_constant():
    model, inputs = Formula(lambda m, x: x + m.f(x) / float(x.abs().max()) * x.std().item(), f=linear()), noise(2, 3)
    network = dissect(model, inputs)
    assert_close(network.run([network.output])[network.output], model(inputs))


def by_places(experts, x, expert_of):
    out = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        (rows,) = torch.where(expert_of == number)
        if rows.numel() == 0:
            continue
        out = out.index_add(0, rows, expert(x[rows]))
    return out


def by_masks(experts, x, expert_of):
    out, counts = torch.zeros_like(x), torch.bincount(expert_of, minlength=len(experts)).tolist()
    for number, expert in enumerate(experts):
        chosen = expert_of == number
        if counts[number] > 0:
            out[chosen] = expert(x[chosen])
    return out


@pytest.mark.parametrize("routed", [by_places, by_masks])
def test_experts_get_the_rows_that_these_samples_sent_them(routed):
    """Of three experts the last gets none."""

    def rule(m, x):
        x = x + routed(m.first, x, (x[:, 0] > 0).long())
        return x + routed(m.second, x, (x[:, 1] > 0).long())

    model = drawn(
        Formula(rule, first=nn.ModuleList(mlp(3) for _ in range(3)), second=nn.ModuleList(mlp(3) for _ in range(3)))
    )
    inputs = noise(6, 3)
    network = dissect(model, inputs)
    assert len(network.blocks) == 2 and network.exported.decided
    assert_close(network.run([network.output])[network.output], model(inputs))
    report = sl.inspect(model, (inputs, torch.arange(6) % 3), lenses=["paths", "jacobians", "convergence"])
    assert not report.problems
    found = report.reading(JacobianSpectrum).singular_values["network"].double()
    dense = torch.cat(
        [torch.linalg.svdvals(torch.autograd.functional.jacobian(model, one[None])[0, :, 0]) for one in inputs[:4]]
    )
    assert_close(found.sort().values, dense.sort().values)


def test_a_shape_that_depends_on_values_is_refused():
    with pytest.raises(NotExportableError, match="decides something in Python by the values inside a tensor"):
        dissect(Formula(lambda m, x: m.f(x)[: len(x[:, 0].unique())], f=linear()), noise(2, 3))
