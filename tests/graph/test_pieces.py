"""Which batches may be cut into pieces."""

import pytest
import torch
from torch import nn

from skiplens.graph.batch import Batch
from skiplens.graph.pieces import is_cut


class Returns(nn.Module):
    """A linear layer beside something else that the model returns."""

    def __init__(self, beside):
        super().__init__()
        self.layer, self.beside = nn.Linear(3, 2), beside

    def forward(self, inputs):
        outputs = self.layer(inputs)
        return outputs, self.beside(outputs)


class Cache:
    """Of keys and values, as language models return it: no tensor, and nothing that a loss takes."""


@pytest.mark.parametrize(
    ("beside", "may"),
    [
        (lambda outputs: None, True),
        (lambda outputs: Cache(), True),
        (lambda outputs: outputs.sum(1), True),
        (lambda outputs: outputs.sum(), False),  # a number of all samples
        (lambda outputs: outputs.T, False),
    ],
)
def test_a_batch_is_cut_where_every_tensor_that_is_returned_has_a_row_for_each_sample(beside, may):
    assert is_cut(Returns(beside).eval(), Batch(torch.randn(6, 3), torch.zeros(6))) is may


def test_a_batch_whose_samples_see_each_other_is_not_cut():
    coupled = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    batch = Batch(torch.randn(6, 3), torch.zeros(6))
    assert not is_cut(coupled.train(), batch) and is_cut(coupled.eval(), batch)
    assert not is_cut(coupled.eval(), batch.first(1))
