"""Whitened digits, kinds of networks, and what counts as equal."""

import pytest
import torch

from skiplens.base.errors import DataError
from skiplens.papers.li2016_shortcuts import common
from skiplens.papers.li2016_shortcuts.common import FAMILIES, judge_equality
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_chain
from tests.tolerances import assert_close


def test_the_first_thousand_digits():
    """Lowest loss, loss at zero weights and condition number from another program, which was given to 15 digits."""
    moments = common.digit_moments("sample", 1000)
    slope = moments.inputs - moments.cross
    assert float(moments.lowest_loss()) == pytest.approx(0.326244356249556, rel=1e-11)
    assert float(moments.loss(torch.eye(10))) == pytest.approx(5.226017705973566, rel=1e-11)
    assert float(torch.linalg.cond(slope)) == pytest.approx(1.558479010899168, rel=1e-11)


def test_inputs_are_white_and_labels_one_hot():
    inputs, targets = common.whitened_digits("sample", 500)
    assert inputs.shape == targets.shape == (500, 10)
    torch.testing.assert_close(inputs.T @ inputs / 500, torch.eye(10), rtol=0, atol=1e-12)  # zeros are compared
    assert torch.equal(targets.sum(1), torch.ones(500))
    assert targets[0].argmax() == 5  # the first digit of MNIST


def test_missing_images_come_with_the_command_that_gets_them(monkeypatch):
    def fail(name: str) -> None:
        raise DataError(f"{name} is not on this machine.")

    monkeypatch.setattr(common, "get", fail)
    with pytest.raises(DataError, match=r"mnist is not on this machine.*\n.*skiplens data get mnist"):
        common.whitened_digits.__wrapped__("mnist")


def test_shortcuts_and_plain_networks(generator):
    W = FAMILIES["xavier"].start(6, generator)
    eye = torch.eye(10)
    a, b, c, d, e, f = W
    expected = {
        "xavier": f @ e @ d @ c @ b @ a,
        "orthogonal": f @ e @ d @ c @ b @ a,
        "1-shortcut": (f + eye) @ (e + eye) @ (d + eye) @ (c + eye) @ (b + eye) @ (a + eye),
        "2-shortcut": (f @ e + eye) @ (d @ c + eye) @ (b @ a + eye),
        "3-shortcut": (f @ e @ d + eye) @ (c @ b @ a + eye),
    }
    for name, family in FAMILIES.items():
        assert_close(linear_chain(family.units(W)).whole, expected[name])


def test_where_weights_start(generator):
    for name, size in (("xavier", 1.0), ("1-shortcut", 0.01), ("2-shortcut", 0.01), ("3-shortcut", 0.01)):
        W = FAMILIES[name].start(200, generator)
        # 20,000 entries of variance size²/10: the mean square has a relative standard error of 1 %
        assert abs(W.square().mean() * 10 / size**2 - 1) < 0.04
    Q = FAMILIES["orthogonal"].start(3, generator)
    assert_close(Q @ Q.mT, torch.eye(10).expand(3, -1, -1))


@pytest.mark.parametrize(
    ("errors", "verdict"),
    [
        ([0.0, 0.0, 0.0], "reproduced"),
        ([1e-15, 2e-15, -3e-16, 1e-16, 5e-16, 4e-16], "reproduced"),
        ([1e-3, 2e-3, 1.5e-3, 1e-3], "differs"),
        ([1e-16, 1e-2, 1e-16, 1e-2], "not attempted"),
    ],
)
def test_errors_are_rounding_or_not(errors, verdict):
    assert judge_equality(torch.tensor(errors), "Something.").verdict == verdict
