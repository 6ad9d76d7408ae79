"""Blocks that the user names, and those read off the modules where there is no graph."""

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.graph.dissect import CHOSEN_BLOCKS, chosen_blocks, find_residual_blocks
from skiplens.graph.lens import Subject
from skiplens.graph.modules import ASSUMED
from skiplens.signal.lens import SignalLens
from skiplens.signal.reading import SignalReading
from skiplens.signal.structure import StructureReading
from tests.networks import Formula, drawn, linear, mlp, noise
from tests.tolerances import assert_close


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = mlp(4)

    def forward(self, x):
        return x + self.f(x)


class Layers(nn.Module):
    """Three residual blocks; `looks` makes it read numbers with NumPy, which torch.export refuses."""

    def __init__(self, looks=False):
        super().__init__()
        self.enter, self.layers, self.leave = linear(3, 4), nn.ModuleList(Block() for _ in range(3)), linear(4, 2)
        self.looks = looks

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers:
            x = layer(x) if not self.looks or x.detach().numpy().any() else x
        return self.leave(x)


DATA = noise(6, 3), torch.arange(6) % 2


def looked_at(looks):
    return SignalLens()(Subject(drawn(Layers(looks)), Batch(*DATA), "layers"), Randomness(0))


def test_hooks_see_what_the_graph_shows():
    graph, hooked = looked_at(False), looked_at(True)
    assert hooked.block_names == graph.block_names == ("layers.0", "layers.1", "layers.2")
    for field in ("signal", "gradient", "branch_norms", "shortcut_norms", "alignments", "weight_norms"):
        assert_close(getattr(hooked, field), getattr(graph, field))
    assert hooked.widths.tolist() == [4, 4, 4] and ASSUMED in hooked.notes[0] and not graph.notes


def test_a_model_without_a_graph_is_looked_at_and_what_is_lost_is_told():
    model = drawn(Layers(looks=True))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = sl.inspect(model, DATA, lenses=["paths", "curvature", "tangent"])
    kinds = {reading.kind for reading in report.readings}
    assert len(kinds) == 5 and {"structure", "signal", "layers"} <= kinds
    assert [problem.lens for problem in report.problems] == ["paths"] and "Healthy." not in report.verdict
    structure = report.reading(StructureReading)
    assert structure.shortcuts == ("assumed",) * 3 and ASSUMED in structure.notes[0]
    assert structure.in_branches == sum(p.numel() for p in model.layers.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_the_user_may_say_which_modules_are_blocks():
    found = find_residual_blocks(drawn(Layers()), DATA[0], blocks=["layers.2", "layers.0"])
    assert [block.name for block in found] == ["layers.0", "layers.2"]
    for looks in (False, True):
        report = sl.inspect(drawn(Layers(looks)), DATA, lenses=["task"], blocks=["layers.1"])
        assert report.reading(SignalReading).block_names == ("layers.1",)
    assert CHOSEN_BLOCKS.get() == ()


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g = mlp(), mlp()

    def forward(self, x):
        return self.f(x) + self.g(x)


def test_a_sum_that_does_not_look_like_a_join_is_one_where_the_user_says_so():
    model = Formula(lambda m, x: m.head(m.experts(x)), experts=Experts(), head=linear())
    assert find_residual_blocks(model, noise(2, 3)) == []
    assert [block.name for block in find_residual_blocks(model, noise(2, 3), blocks=["experts"])] == ["experts"]


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        (["layer.0"], "The model has no module 'layer.0'"),
        (["leave"], "No sum in the module 'leave' joins two things"),
        ("layers.0", "takes a list of names of modules, not the one string 'layers.0'"),
    ],
)
def test_names_that_are_no_blocks_are_told(blocks, said):
    with pytest.raises(InvalidInputError, match=said):
        find_residual_blocks(drawn(Layers()), DATA[0], blocks=blocks)
    if blocks != ["leave"]:
        with pytest.raises(InvalidInputError, match=said):
            sl.inspect(drawn(Layers()), DATA, blocks=blocks)


def test_no_names_leave_the_choice_as_it_is():
    with chosen_blocks(["a"]), chosen_blocks([]):
        assert CHOSEN_BLOCKS.get() == ("a",)


class Branches(nn.Module):
    """Modules that return what is added to the stream, with norms before them or none; it may ask NumPy."""

    def __init__(self, norms, looks):
        super().__init__()
        self.enter, self.leave, self.looks = linear(3, 4), linear(4, 2), looks
        self.norms = nn.ModuleList(nn.LayerNorm(4) if norms else nn.Identity() for _ in range(3))
        self.branches = nn.ModuleList(mlp(4) for _ in range(3))

    def forward(self, x):
        x = self.enter(x)
        for norm, branch in zip(self.norms, self.branches, strict=True):
            x = x + branch(norm(x)) if not self.looks or x.detach().numpy().any() else x
        return self.leave(x.tanh())


@pytest.mark.parametrize("norms", [False, True])
def test_sums_outside_of_the_modules_are_seen(norms):
    models = [drawn(Branches(norms, looks)) for looks in (False, True)]
    graph, hooked = (SignalLens()(Subject(model, Batch(*DATA), "sums"), Randomness(0)) for model in models)
    assert hooked.block_names == ("branches.0", "branches.1", "branches.2")  # and no norm
    for name in ("signal", "gradient", "branch_norms", "shortcut_norms"):
        assert_close(getattr(hooked, name), getattr(graph, name))
