"""Towers that are multiplied, masks that are multiplied in, and blocks that only gate, against brute force."""

import math
from itertools import product

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.graph.dissect import dissect, find_residual_blocks
from skiplens.paths.forward import BlockDerivatives, TotalDerivative, expand_signal
from skiplens.paths.plan import frozen_plan
from skiplens.paths.report import expected_depth, judge_depth, paths_section, paths_sentence
from skiplens.paths.spectrum import path_spectrum
from tests.networks import Formula, LinearResidual, drawn, linear, mlp, noise
from tests.signal.looking import look
from tests.tolerances import assert_close

LEFT, RIGHT = 2, 3
BOTH = noise(4, 3), noise(4, 3, seed=1)
WAYS = {
    "mul": lambda a, b: a * b,
    "matmul": lambda a, b: a @ b.T,
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a, b),
}


def towers(meet) -> nn.Module:
    parts = {"left": LinearResidual(LEFT), "right": LinearResidual(RIGHT, scale=0.5)}
    return drawn(Formula(lambda m, x, y: meet(m.left(x), m.right(y)), **parts))


def through(tower: LinearResidual, x, chosen) -> torch.Tensor:
    """The one path that takes the branches of the chosen layers and the shortcut of all others."""
    for layer, taken in zip(tower.layers, chosen, strict=True):
        x = tower.scale * layer(x) if taken else x
    return x


def every_path(model, meet, inputs=BOTH):
    """All pairs of a path of the left tower and one of the right, by the branches that they take."""
    with torch.no_grad():
        for chosen in product((0, 1), repeat=LEFT + RIGHT):
            left, right = chosen[:LEFT], chosen[LEFT:]
            yield chosen, meet(through(model.left, inputs[0], left), through(model.right, inputs[1], right))


def energies(paths, count, length):
    sums = [torch.zeros(()) for _ in range(length)]
    for chosen, value in paths:
        sums[count(chosen)] = sums[count(chosen)] + value
    return torch.stack([value.square().sum() for value in sums])


@pytest.mark.parametrize("way", WAYS)
def test_a_path_is_one_through_each_tower(way):
    model, meet = towers(WAYS[way]), WAYS[way]
    reading = path_spectrum(model, BOTH, blocks=True, pairs=True)
    paths = list(every_path(model, meet))
    assert_close(reading.energy, energies(paths, sum, 6))
    for number in range(5):
        own = sum(value for chosen, value in paths if chosen[number])
        assert_close(reading.block_energy[number], own.square().sum())
    shared = sum(value for chosen, value in paths if chosen[0] and chosen[4])
    assert_close(reading.pair_energy[0, 4], shared.square().sum())


def test_the_paths_through_a_block_are_what_is_lost_when_it_is_silenced():
    model = towers(WAYS["matmul"])
    reading = path_spectrum(model, BOTH, blocks=True)
    for number, (tower, place) in enumerate([("left", 0), ("left", 1), ("right", 0), ("right", 1), ("right", 2)]):
        with torch.no_grad():
            whole = model(*BOTH)
            weight = getattr(model, tower).layers[place].weight
            kept = weight.clone()
            lost = whole - (weight.zero_(), model(*BOTH))[1]
            weight.copy_(kept)
        assert_close(reading.block_energy[number], lost.square().sum())
        assert_close(reading.block_shares[number], (lost * whole).sum() / whole.square().sum())


def test_each_tower_is_followed_by_itself():
    model, meet = towers(WAYS["mul"]), WAYS["mul"]
    reading = path_spectrum(model, BOTH)
    paths = list(every_path(model, meet))
    assert reading.tower_names == ("left.layers", "right.layers") and reading.tower_blocks == (LEFT, RIGHT)
    assert_close(reading.tower_energy[0], energies(paths, lambda chosen: sum(chosen[:LEFT]), 6))
    assert_close(reading.tower_energy[1], energies(paths, lambda chosen: sum(chosen[LEFT:]), 6))
    left, right = reading.tower_depths.tolist()
    assert f"({left:.1f} of the 2 in left.layers, {right:.1f} of the 3 in right.layers)" in paths_sentence(reading)
    assert "one path through each" in reading.notes[-1]


def test_only_short_paths_are_followed_where_that_is_asked():
    model, meet = towers(WAYS["mul"]), WAYS["mul"]
    reading = path_spectrum(model, BOTH, max_order=2)
    paths = list(every_path(model, meet))
    assert_close(reading.energy, energies(paths, sum, 6)[:3])
    whole, kept = (sum(value for c, value in paths if sum(c) <= most) for most in (5, 2))
    assert_close(torch.tensor(reading.remainder), (whole - kept).square().sum())
    slope = sum(sum(chosen) * value for chosen, value in paths)
    assert_close(torch.tensor(reading.coherent_depth), (slope * whole).sum() / whole.square().sum())


def test_three_towers_of_any_layers_add_up_to_the_output():
    def block(m, x):
        return x + m.f(x)

    parts = {name: Formula(block, f=mlp()) for name in ("a", "b", "c")}
    model = drawn(Formula(lambda m, x, y: m.a(x) * nn.functional.normalize(m.b(y)) * m.c(x + y), **parts))
    network = dissect(model, BOTH)
    plan = frozen_plan(network, network.node(network.output))
    assert [sorted(tower) for tower in plan.towers] == [[0], [1], [2]]
    for counting in (BlockDerivatives(), TotalDerivative()):
        assert_close(expand_signal(plan, counting)[0], model(*BOTH).detach())
    assert_close(path_spectrum(model, BOTH).shares.sum(), torch.tensor(1.0))


def test_the_depth_that_is_expected_adds_up_over_towers():
    model = towers(WAYS["mul"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.05)
    reading = path_spectrum(model, BOTH, blocks=True)
    assert expected_depth(reading) == pytest.approx(2 / 3 + 3 / 4)
    (finding,) = judge_depth(reading, look(model, BOTH))
    assert "would give 1.4" in finding.sentence and "of the 3 in right.layers" in finding.sentence


def test_towers_that_share_blocks_are_no_product_of_two():
    """Behind a trunk the blocks of the trunk would count twice: one tower is followed, the other is held."""
    parts = {"trunk": LinearResidual(1), "left": LinearResidual(1), "right": LinearResidual(1)}

    def behind_a_trunk(m, x):
        shared = m.trunk(x)
        return m.left(shared) * m.right(shared)

    model = drawn(Formula(behind_a_trunk, **parts))
    reading = path_spectrum(model, BOTH[0], blocks=True)
    names = [name for name, energy in zip(reading.block_names, reading.block_energy, strict=True) if math.isnan(energy)]
    assert reading.tower_names == () and names == ["left"]
    assert any("There is no share for" in note for note in reading.notes)


def gated(m, x, y):
    """The blocks of y are seen by the attention weights alone."""
    query = y + m.f(y)
    values = x + m.g(x)
    return torch.softmax(query @ values.T, -1) @ values


def test_a_block_that_only_weighs_has_no_share():
    model = drawn(Formula(gated, f=linear(), g=linear()))
    reading = path_spectrum(model, BOTH, blocks=True, pairs=True)
    held = [block.index for block in find_residual_blocks(model, BOTH) if "f" in block.branch.modules]
    assert len(held) == 1
    for numbers in (reading.block_energy, reading.block_shares, reading.pair_energy[0], reading.pair_energy[:, 0]):
        assert torch.isnan(numbers).tolist()[held[0]]
    assert torch.isnan(reading.block_energy).sum() == 1
    assert "no path leads through the block" in reading.notes[-1] and "block_energy" in reading.absences
    row = paths_section(reading).rows[held[0]]
    assert row["energy"] == row["along the output"] == "–"


MASK = (noise(4, 1, seed=2) > 0).double()


def masked(m, x, mask):
    for layer in m.layers.layers:
        x = x + layer(x) * mask
    return x * mask


@pytest.mark.parametrize("mask", [MASK, 0.3 + MASK], ids=["zeros and ones", "weights"])
def test_paths_follow_the_hidden_states_and_not_the_mask(mask):
    model = drawn(Formula(masked, layers=LinearResidual(3)))
    reading = path_spectrum(model, (BOTH[0], mask), blocks=True)
    sums = [torch.zeros(()) for _ in range(4)]
    with torch.no_grad():
        for chosen in product((0, 1), repeat=3):
            x = BOTH[0]
            for layer, taken in zip(model.layers.layers, chosen, strict=True):
                x = layer(x) * mask if taken else x
            sums[sum(chosen)] = sums[sum(chosen)] + x * mask
    assert_close(reading.energy, torch.stack([value.square().sum() for value in sums]))


def test_no_derivative_is_taken_by_a_mask():
    model = drawn(Formula(masked, layers=LinearResidual(3)))
    alone = drawn(Formula(lambda m, x: masked(m, x, MASK), layers=LinearResidual(3)))
    for of in ("jacobian", "gradient"):
        found = path_spectrum(model, (BOTH[0], MASK), of=of, direction=BOTH[1]).energy
        assert_close(found, path_spectrum(alone, BOTH[0], of=of, direction=BOTH[1]).energy)


SIGNALS = {
    "meets weights": lambda m, x, y: m.f(x) + m.g(y),
    "is added": lambda m, x, y: m.f(x + y),
    "is put beside": lambda m, x, y: m.wide(torch.cat([x, y], -1)),
    "is scaled by a parameter": lambda m, x, y: m.f(x) * (y * m.scale),
}


@pytest.mark.parametrize("how", SIGNALS)
def test_zeros_and_ones_that_are_a_signal_are_followed(how):
    parts = {"f": linear(), "g": linear(), "wide": linear(6, 3), "scale": nn.Parameter(torch.ones(3))}
    network = dissect(drawn(Formula(SIGNALS[how], **parts)), (BOTH[0], (BOTH[1] > 0).double()))
    assert len(frozen_plan(network, network.node(network.output)).sources) == 2


class TwoTowers(nn.Module):
    """Words with a mask on one side, numbers on the other, a dict of outputs, as people write it."""

    def __init__(self):
        super().__init__()
        self.words, self.numbers = nn.Embedding(20, 8), nn.Linear(5, 8)
        self.left, self.right = (nn.ModuleList(nn.Linear(8, 8) for _ in range(2)) for _ in range(2))

    def forward(self, tokens, mask, numbers):
        left, right = self.words(tokens), self.numbers(numbers)
        for layer in self.left:
            left = left + torch.tanh(layer(left)) * mask[..., None]
        for layer in self.right:
            right = right + torch.tanh(layer(right))
        left = (left * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return {"similarity": (left * right).sum(-1, keepdim=True), "left": left, "right": right}


def test_two_towers_with_a_mask_get_no_false_word():
    mask = torch.ones(6, 4)
    mask[:3, 2:] = 0
    tokens = torch.randint(0, 20, (6, 4), generator=torch.Generator().manual_seed(0))
    inputs = {"tokens": tokens, "mask": mask, "numbers": noise(6, 5)}
    model = drawn(TwoTowers())
    report = sl.inspect(model, (inputs, noise(6, 1, seed=3)), lenses=["paths"])
    reading = report.reading(sl.PathSpectrum)
    assert reading.tower_names == ("left", "right") and reading.tower_blocks == (2, 2)
    whole = model(**inputs)["similarity"].detach()
    for name in ("left.1", "right.1"):  # nothing nonlinear reads these: the paths through them are what they add
        layer = model.get_submodule(name)
        kept = {key: value.clone() for key, value in layer.state_dict().items()}
        nn.init.zeros_(layer.weight), nn.init.zeros_(layer.bias)
        lost = (whole - model(**inputs)["similarity"].detach()).square().sum()
        layer.load_state_dict(kept)
        assert_close(reading.block_energy[reading.block_names.index(name)], lost)
    assert not report.problems and not [finding for finding in report.findings if finding.severity != "note"]
