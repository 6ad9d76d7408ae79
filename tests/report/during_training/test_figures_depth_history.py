import torch

from skiplens.report.during_training.depth_reading import DepthHistory, depth_against_steps, scales_against_steps
from skiplens.report.lenses import figures_of


def history(**changes):
    values = {
        "of": "signal",
        "steps": torch.tensor([0, 10]),
        "losses": torch.tensor([2.0, 1.0]),
        "energy": torch.tensor([[1.0, 0.0, 0.0], [1.0, 2.0, 1.0]]),
        "coherent_depth": torch.tensor([0.1, 0.9]),
        "laws": ("", "binomial"),
        "block_names": ("a", "b"),
        "scales": torch.tensor([[1.0, float("nan")], [1.5, float("nan")]]),
        "weight_scale": torch.tensor([2.0, 3.0]),
        "norm_change": torch.tensor([0.1, 0.2]),
        "norm_change_measured": torch.tensor([0.1, 0.3]),
        "scale_drive": torch.tensor([1.0, 2.0]),
        "scale_drive_measured": torch.tensor([1.5, 2.5]),
    }
    return DepthHistory(**(values | changes))


def test_figures_of_a_whole_history():
    assert [figure.name for figure in figures_of(history())] == [
        "depth_against_steps",
        "spectrum_before_and_after",
        "scales_against_steps",
        "forces_against_steps",
        "norm_change_against_steps",
    ]


def test_depths_are_drawn_at_their_steps():
    figure = depth_against_steps(history())
    mean, coherent, peak = figure.marks
    assert (mean.x, mean.y) == ((0.0, 10.0), (0.0, 1.0))
    assert coherent.y == (0.1, 0.9) and peak.y == (0.0, 1.0)
    assert "0.00 at the start, 1.00 at the end" in figure.caption


def test_scales_that_a_block_has_not_are_not_drawn():
    figure = scales_against_steps(history())
    assert [(mark.name, mark.y) for mark in figure.marks] == [
        ("λ of a", (1.0, 1.5)),
        ("weight scale C, relative to the start", (1.0, 1.5)),
    ]
    empty = torch.zeros(0)
    assert scales_against_steps(history(scales=torch.full((2, 2), float("nan")), weight_scale=empty)) is None


def test_a_history_without_forces_has_no_pictures_of_them():
    empty = torch.zeros(0)
    names = [figure.name for figure in figures_of(history(norm_change=empty, scale_drive=empty))]
    assert "forces_against_steps" not in names and "norm_change_against_steps" not in names
