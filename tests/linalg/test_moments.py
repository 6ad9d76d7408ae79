import pytest
import torch

from skiplens.linalg.second_moments import second_moments
from tests.papers.li2016_shortcuts.hessian.reference import data
from tests.tolerances import assert_close


@pytest.mark.parametrize(("d", "m", "zero", "lowest"), [
    (3, 8, 0.908425, 0.3026217094665635),
    (10, 40, 2.16707, 0.3883726308217353),
])  # fmt: skip
def test_losses_of_the_reference_table(d, m, zero, lowest):
    moments = second_moments(*data(d, m))
    assert_close(moments.loss(torch.eye(d)), torch.tensor(zero))
    assert_close(moments.lowest_loss(), torch.tensor(lowest))


def test_loss_slope_and_best_map_from_the_samples_themselves(generator):
    x, y = torch.randn(20, 4, generator=generator), torch.randn(20, 3, generator=generator)
    W = torch.randn(3, 4, generator=generator).requires_grad_()
    loss = (y - x @ W.T).square().sum() / 40
    moments = second_moments(x, y)
    assert_close(moments.loss(W.detach()), loss.detach())
    assert_close(moments.slope(W.detach()), torch.autograd.grad(loss, W)[0])
    best = torch.linalg.lstsq(x, y).solution.T
    assert_close(moments.best_map(), best, relative=1e-10)  # the condition number of the moments squares the data's
    excess = ((x @ (W.detach() - best).T).square().sum()) / 40
    assert_close(moments.excess_loss(W.detach()), excess, relative=1e-10)


def test_excess_loss_keeps_its_digits_where_the_difference_of_losses_has_none():
    moments = second_moments(*data(3, 8))
    near = moments.best_map() + 1e-9
    expected = moments.inputs.sum() * 3 * 1e-18 / 2
    assert_close(moments.excess_loss(near), expected, relative=1e-5)  # the step itself is rounded: 1e-16 of 1e-9
    assert abs((moments.loss(near) - moments.lowest_loss()).item()) < 1e-15


def test_lowest_loss_with_fewer_samples_than_features_is_zero(generator):
    x, y = torch.randn(2, 4, generator=generator), torch.randn(2, 4, generator=generator)
    assert abs(second_moments(x, y).lowest_loss().item()) < 1e-12
