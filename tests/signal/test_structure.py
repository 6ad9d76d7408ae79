from dataclasses import replace

import torch
from torch import nn

from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.graph.lens import Subject
from skiplens.signal.structure import StructureLens, structure_sentence
from tests.lens_cases import subject
from tests.networks import Formula, chain, linear, noise


def look(looked_at: Subject):
    return StructureLens()(looked_at, Randomness(0), silent)


def test_blocks_and_sizes_counted_by_hand():
    """Each block: batch norm 2·4, then 4·5 + 5 and 5·4 + 4 weights; the head has 4·2 + 2."""
    reading = look(subject())
    assert reading.structure == "residual" and reading.shortcuts == ("identity", "identity")
    assert reading.branch_parameters.tolist() == [57, 57] and reading.shortcut_parameters.tolist() == [0, 0]
    assert reading.branch_depths.tolist() == [2, 2]
    assert reading.parameters == reading.trainable_parameters == 2 * 57 + 10
    assert reading.buffers == 2 * (4 + 4 + 1)
    assert reading.input_shapes == ("6 × 4",) and reading.output_shape == "6 × 2"
    assert reading.dtype == "float64" and not reading.training and reading.notes == ()
    assert reading.model == "two blocks" and reading.block_shapes == ("6 × 4", "6 × 4")


def test_a_block_that_changes_the_shape_says_both():
    model = Formula(lambda m, x: m.wide(x) + m.f(x).relu(), wide=nn.Linear(3, 5), f=nn.Linear(3, 5)).double()
    reading = look(Subject(model, Batch(noise(2, 3), torch.tensor([0, 1])), "wider"))
    assert reading.shortcuts == ("projection",) and reading.block_shapes == ("2 × 3 → 2 × 5",)


def test_frozen_parameters_are_not_counted_as_trainable():
    looked_at = subject()
    looked_at.model[2].requires_grad_(False)
    assert look(looked_at).trainable_parameters == 2 * 57


def test_a_plain_chain_has_no_rows():
    reading = look(Subject(chain(), Batch(noise(2, 3), torch.tensor([0, 1])), "chain"))
    assert reading.structure == "chain" and reading.rows() == () and reading.branch_depths.numel() == 0


def test_parameters_that_are_not_finite_are_noted():
    looked_at = subject()
    with torch.no_grad():
        looked_at.model[0].first.weight[0, 0] = float("nan")
        looked_at.model[2].bias[1] = float("inf")
    (note,) = look(looked_at).notes
    assert "hold NaN or infinite values: 0.first.weight, 2.bias." in note


def test_a_model_without_parameters_is_told_as_one():
    reading = look(Subject(nn.Tanh(), Batch(noise(2, 3), torch.tensor([0, 1])), "tanh"))
    assert reading.parameters == 0 and reading.dtype == "absent"


def test_nested_and_shared_branches_hold_each_parameter_once():
    shared = linear()
    model = Formula(lambda m, x: (lambda y: y + m.f(m.g(y) + y))(x + m.f(x)), f=shared, g=linear())
    reading = look(Subject(model, Batch(noise(2, 3), torch.tensor([0, 1])), "nested"))
    assert reading.in_branches == reading.parameters == 24 and int(reading.branch_parameters.sum()) == 48
    sentence = structure_sentence(reading)
    assert "has 2 residual blocks and 1 inside them" in sentence and "hold 100 % of its 24" in sentence
    assert "hold 100 %" in structure_sentence(replace(reading, in_branches=None))
