"""The graph of a model is taken once for all models that are built alike, and only for these."""

import pytest
import torch
from torch import nn

from skiplens.base.arguments import Arguments
from skiplens.graph import export as module
from skiplens.graph.dissect import dissect
from skiplens.graph.export import export
from tests.networks import noise
from tests.tolerances import assert_close


class Chosen(nn.Module):
    """x + branch(x), once or twice by a setting, and times a tensor that is no buffer."""

    def __init__(self, seed=0, *, doubled=False, factor=None):
        super().__init__()
        torch.manual_seed(seed)
        self.layer, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.doubled, self.factor = doubled, factor

    def forward(self, x):
        branch = self.layer(self.norm(x))
        branch = branch if self.factor is None else branch * self.factor
        return x + (2 * branch if self.doubled else branch)


@pytest.fixture
def traced(monkeypatch):
    """The models that were exported."""
    found, usual = [], module._traced
    monkeypatch.setattr(module, "_KNOWN", {})
    monkeypatch.setattr(module, "_traced", lambda model, *rest: found.append(model) or usual(model, *rest))
    return found


def right(model, x):
    """Whether the graph computes what the model does."""
    network = dissect(model, x)
    with torch.no_grad():
        assert_close(network.run([network.output])[network.output], model(x))


def test_draws_of_a_model_share_a_graph_and_keep_their_weights(traced):
    for seed in range(3):
        right(Chosen(seed).eval(), noise(5, 3, seed=seed))
    assert len(traced) == 1


def test_a_setting_a_mode_a_shape_and_a_type_make_another_graph(traced):
    x = noise(5, 3)
    right(Chosen().eval(), x)
    right(Chosen(doubled=True).eval(), x)
    export(Chosen().train(), Arguments.of(x))
    right(Chosen().eval(), x[:4])
    right(Chosen().float().eval(), x.float())
    tied = Chosen().eval()
    tied.norm.weight = tied.norm.bias
    right(tied, x)
    assert len(traced) == 6


def test_a_graph_that_holds_numbers_is_for_its_model_alone(traced):
    for factor in (2.0, 3.0):
        right(Chosen(factor=torch.tensor([factor])).eval(), noise(5, 3))
    assert len(traced) == 2


def test_a_few_graphs_are_kept(traced, monkeypatch):
    monkeypatch.setattr(module, "_MOST_KNOWN", 1)
    x = noise(5, 3)
    for doubled in (False, True, True, False):
        export(Chosen(doubled=doubled).eval(), Arguments.of(x))
    assert len(traced) == 3
