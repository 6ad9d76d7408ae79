import torch

from skiplens.signal.report import branch_against_shortcut, scales_by_block, shut_units_by_block, signal_by_depth
from tests.report.readings import at, signal


def test_signal_and_gradient_start_at_one():
    _, forward, backward = signal_by_depth(signal(blocks=2, rate=1.0, back=2.0)).marks
    assert torch.allclose(torch.tensor(forward.y).log(), torch.tensor([0.0, 1.0, 2.0]))
    assert torch.allclose(torch.tensor(backward.y).log(), torch.tensor([4.0, 2.0, 0.0]))


def test_branches_are_compared_with_one_over_the_root_of_depth():
    bars, level = branch_against_shortcut(signal(blocks=4)).marks
    assert bars.y == (0.3,) * 4 and level.value == 0.5


def test_nothing_to_show_no_figure():
    none = torch.full((8,), float("nan"))
    assert scales_by_block(signal(norm_scales=none)) is None and shut_units_by_block(signal()) is None
    empty = signal(blocks=0, signal=torch.zeros(0, 4), gradient=torch.zeros(0, 4))
    assert signal_by_depth(empty) is None and branch_against_shortcut(empty) is None


def test_shut_units_are_shown_where_there_are_any():
    (bars,) = shut_units_by_block(signal(dead_units=at(8, 1, 0.5))).marks
    assert bars.name == "dead (ReLU)" and bars.y[1] == 0.5
    assert scales_by_block(signal()) is not None
