"""Figures 5 and 6: interpolation by hand, the measures against automatic differentiation, judges that can say no."""

import math

import torch

from skiplens.papers.li2016_shortcuts import fig5_fig6
from skiplens.papers.li2016_shortcuts.common import FAMILIES, digit_moments
from skiplens.papers.li2016_shortcuts.fig5_fig6 import Descent, SpectraAtLosses
from tests.papers.li2016_shortcuts.fake_readings import fake, judged
from tests.tolerances import assert_close


def test_quantities_are_interpolated_in_the_loss():
    losses, values = torch.tensor([5.0, 3.0, 2.0, 1.0]), torch.tensor([10.0, 20.0, 40.0, 80.0])
    quantity = lambda epoch: values[epoch : epoch + 1]  # noqa: E731
    assert fig5_fig6.at_loss(losses, 4.0, quantity).tolist() == [15.0]
    assert fig5_fig6.at_loss(losses, 2.0, quantity).tolist() == [40.0]
    assert fig5_fig6.at_loss(losses, 1.25, quantity).tolist() == [70.0]
    assert fig5_fig6.at_loss(losses, 0.5, quantity).isnan().all()  # never reached
    assert fig5_fig6.at_loss(losses, 6.0, quantity).isnan().all()  # below it from the start


def two_matrices(flat: torch.Tensor) -> torch.Tensor:
    """The loss of the network I + W_2 W_1."""
    W_1, W_2 = flat.view(2, 10, 10)
    return digit_moments("sample").loss(torch.eye(10) + W_2 @ W_1)


def eigenvalues(flat: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvalsh(torch.func.jacrev(torch.func.grad(two_matrices))(flat))


def test_the_first_epochs_against_automatic_differentiation(seed):
    settings = Descent(depth=2, epochs=4, every=2, source="sample", seed=seed)
    found = fig5_fig6.descent(settings)
    assert found["epoch"].tolist() == [0, 2, 4]
    W = FAMILIES["2-shortcut"].start(2, settings.stream()).flatten()
    for place in range(3):
        slope = torch.func.grad(two_matrices)(W)
        assert_close(found["loss"][place], two_matrices(W))
        assert_close(found["gradient_norm"][place], slope.norm(), 1e-9)  # the trainer differs by its order of sums
        assert float(found["index"][place]) == float((eigenvalues(W) < 0).double().mean())
        for _ in range(2):
            W = W - 0.1 * torch.func.grad(two_matrices)(W)


def test_spectra_at_a_loss_against_automatic_differentiation(seed):
    """Gradient descent step by step until the loss is reached, all eigenvalues on both sides of it."""
    settings = SpectraAtLosses(depth=2, epochs=120, losses=(3.0,), source="sample", seed=seed)
    after = FAMILIES["2-shortcut"].start(2, settings.stream()).flatten()
    while two_matrices(after) > 3.0:
        before, after = after, after - 0.1 * torch.func.grad(two_matrices)(after)
    share = (two_matrices(before) - 3.0) / (two_matrices(before) - two_matrices(after))
    sizes = [eigenvalues(W).abs().sort().values for W in (before, after)]
    largest = torch.lerp(sizes[0][-1], sizes[1][-1], share)
    tenth = torch.lerp(sizes[0][19], sizes[1][19], share)  # rank 20 of 200
    found = fig5_fig6.spectra_at_losses(settings)
    assert_close(found["largest"][0], largest, 1e-8)  # rounding has grown along the descent
    assert_close(found["tenth"][0], tenth, 1e-8)
    assert found["loss"].tolist() == [3.0]


def spectra(family: str, condition: dict[float, float], index: float = 0.5, depth: int = 16) -> list:
    losses = torch.tensor(sorted(condition, reverse=True))
    numbers = torch.tensor([condition[float(loss)] for loss in losses])
    settings = {"family": family, "depth": depth}
    return [
        fake(
            "spectra_at_losses",
            {**settings, "replicate": replicate},
            loss=losses,
            condition_number=numbers,
            index=torch.full_like(numbers, index),
        )
        for replicate in range(3)
    ]


LOSSES = (4.0, 2.0, 0.4, 0.345)


def test_a_counterexample_near_the_end_corrects_always():
    two = spectra("2-shortcut", dict(zip(LOSSES, (2.0, 3.0, 100.0, 1e4), strict=True)))
    always = spectra("orthogonal", dict(zip(LOSSES, (40.0, 40.0, 500.0, 2e4), strict=True)))
    nearly = spectra("orthogonal", dict(zip(LOSSES, (40.0, 40.0, 500.0, 5e3), strict=True)))
    never = spectra("orthogonal", dict(zip(LOSSES, (1.0, 1.0, 50.0, 5e3), strict=True)))
    assert judged(fig5_fig6.FIG5, "always_smaller", two + always).verdict == "reproduced"
    assert judged(fig5_fig6.FIG5, "always_smaller", two + nearly).verdict == "corrected"
    assert judged(fig5_fig6.FIG5, "always_smaller", two + never).verdict == "differs"
    assert judged(fig5_fig6.FIG5, "much_smaller_when_large", two + always).verdict == "reproduced"
    assert judged(fig5_fig6.FIG5, "much_smaller_when_large", two + never).verdict == "differs"


def test_condition_numbers_that_rise_have_no_last_value():
    rising, level = ({0.45: 100.0, 0.345: end} for end in (1e4, 110.0))
    assert (
        judged(
            fig5_fig6.FIG5, "same_value_at_the_end", spectra("2-shortcut", rising) + spectra("orthogonal", rising)
        ).verdict
        == "opposite"
    )
    assert (
        judged(
            fig5_fig6.FIG5, "same_value_at_the_end", spectra("2-shortcut", level) + spectra("orthogonal", level)
        ).verdict
        == "reproduced"
    )


def test_xavier_networks_that_do_not_reach_a_loss_count_where_they_are():
    two = spectra("2-shortcut", {0.7: 20.0, 0.5: 30.0})
    xavier = spectra("xavier", {0.7: 1e7, 0.5: math.nan})
    assert judged(fig5_fig6.FIG5, "smaller_than_xavier", two + xavier).verdict == "reproduced"
    assert (
        judged(fig5_fig6.FIG5, "smaller_than_xavier", two + spectra("xavier", {0.7: 2.0, 0.5: math.nan})).verdict
        == "opposite"
    )


def test_networks_of_another_depth_are_not_judged():
    (claim, *_) = fig5_fig6.FIG5
    shallow = spectra("2-shortcut", {1.0: 2.0}, depth=6) + spectra("orthogonal", {1.0: 40.0}, depth=6)
    judgement = claim.judge(shallow)
    assert judgement.verdict == "not attempted"
    assert "networks with 16 matrices; these have 6" in judgement.explanation


def test_the_judges_of_the_index():
    fallen = spectra("2-shortcut", {1.5: 1.0}, index=0.5 - 55 / 1600)
    assert judged(fig5_fig6.FIG6, "drop", fallen).verdict == "reproduced"
    assert judged(fig5_fig6.FIG6, "drop", spectra("2-shortcut", {1.5: 1.0}, index=0.49)).verdict == "differs"
    assert (
        judged(fig5_fig6.FIG6, "smaller", fallen + spectra("orthogonal", {1.5: 1.0}, index=0.52)).verdict
        == "reproduced"
    )
    assert (
        judged(fig5_fig6.FIG6, "smaller", fallen + spectra("orthogonal", {1.5: 1.0}, index=0.45)).verdict == "opposite"
    )


def descents(peak: int) -> list:
    """The index falls by 10 eigenvalues of 1,600 an epoch from epoch 3 on."""
    epochs = torch.arange(12)
    return [
        fake(
            "descent",
            {"depth": 16, "replicate": replicate},
            epoch=epochs,
            index=0.5 - (epochs - 2).clamp(0, 6) * 10 / 1600,
            gradient_norm=-(epochs - peak).abs().double(),
        )
        for replicate in range(3)
    ]


def test_the_place_of_the_gradient_in_the_drop():
    """It begins at epoch 3 and has ended at epoch 7, where 50 are gone."""
    assert fig5_fig6.peak_places(descents(5)).tolist() == [0.5] * 3
    assert judged(fig5_fig6.FIG6, "gradient", descents(5)).verdict == "reproduced"
    assert judged(fig5_fig6.FIG6, "gradient", descents(10)).verdict == "differs"
