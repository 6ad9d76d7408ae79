"""Shortcuts against their matrices: singular values where they are few, a probe where they are many."""

import pytest
import torch
from torch import nn


def skip_of(shortcut, shape=(2, 4, 6, 6), outputs=None):
    from skiplens.graph.dissect import dissect
    from skiplens.jacobians.hypotheses.chain import describe_model
    from skiplens.jacobians.hypotheses.parts import GraphView
    from skiplens.zoo.layers import Residual

    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    branch = outputs or nn.Conv2d(4, 4, 1)
    (layer,) = describe_model(GraphView(dissect(Residual(branch, shortcut), inputs)), torch.Generator().manual_seed(0))
    return layer.skip


def zoo_skips():
    from skiplens.zoo import skips

    return {
        "pool": (skips.ScaledAveragePool(2), nn.Conv2d(4, 4, 2, stride=2), (1, 1)),
        "padded": (skips.PaddedAveragePool(2, 4), nn.Conv2d(4, 8, 2, stride=2), (0, 1)),
        "isometric": (skips.IsometricPool(2, 4, 8), nn.Conv2d(4, 8, 2, stride=2), (1, 1)),
    }


@pytest.mark.parametrize("name", ["pool", "padded", "isometric"])
def test_singular_values_are_those_of_the_matrix(name):
    from skiplens.zoo.skips import skip_matrix

    shortcut, branch, (smallest, largest) = zoo_skips()[name]
    skip = skip_of(shortcut, outputs=branch)
    values = torch.linalg.svdvals(skip_matrix(shortcut, (4, 6, 6)))
    assert (skip.smallest, skip.largest) == pytest.approx((smallest, largest), abs=1e-12)
    assert (float(values[-1]), float(values[0])) == pytest.approx((smallest, largest), abs=1e-12)
    assert skip.is_linear


@pytest.mark.parametrize(("name", "good"), [("pool", True), ("padded", False), ("isometric", True)])
def test_large_shortcuts_are_probed(name, good, monkeypatch):
    from skiplens.jacobians.hypotheses import chain as skips

    monkeypatch.setattr(skips, "DENSE_FEATURES", 8)
    shortcut, branch, _ = zoo_skips()[name]
    skip = skip_of(shortcut, outputs=branch)
    assert skip.smallest is None
    assert (skip.deviation == 0) == good
    if not good:  # half of the outputs are zero: half of |u|² is lost
        assert skip.deviation == pytest.approx(0.5**0.5, abs=0.1)


def test_a_large_tall_shortcut_is_probed_from_the_other_side(monkeypatch):
    from skiplens.jacobians.hypotheses import chain as skips

    class Widened(nn.Module):
        def forward(self, x):
            return nn.functional.pad(x, (0, 1))

    monkeypatch.setattr(skips, "DENSE_FEATURES", 2)
    assert skip_of(Widened(), (2, 3), nn.Linear(3, 4)).deviation == 0


def test_shortcuts_that_bend_mix_or_learn():
    class Bent(nn.Module):
        def forward(self, x):
            return x.abs()

    assert skip_of(Bent()).is_linear is False
    assert skip_of(nn.BatchNorm2d(4, affine=False)).is_linear is False
    assert skip_of(nn.Conv2d(4, 4, 1, bias=False)).parameters == 16
    identity = skip_of(nn.Identity())
    assert (identity.what, identity.smallest, identity.largest) == ("identity", 1, 1)


def test_float32_models_are_isometric_up_to_their_rounding():
    shortcut, branch, _ = zoo_skips()["isometric"]
    from skiplens.graph.dissect import dissect
    from skiplens.jacobians.hypotheses.chain import describe_model
    from skiplens.jacobians.hypotheses.parts import GraphView
    from skiplens.zoo.layers import Residual

    model = Residual(branch, shortcut).float()
    inputs = torch.randn(2, 4, 6, 6, dtype=torch.float32)
    (layer,) = describe_model(GraphView(dissect(model, inputs)), torch.Generator().manual_seed(0))
    assert (layer.skip.smallest, layer.skip.largest) == (1, 1)
