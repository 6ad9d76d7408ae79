"""Whitened digits against numbers worked out elsewhere."""

import pytest
import torch

from skiplens.base.errors import DataError
from skiplens.papers.li2016_shortcuts import common


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
