"""Random signs as an operator draws its probes."""

import torch

from skiplens.linalg.operator import DenseOperator
from skiplens.linalg.trace import draw


def rademacher(size, count, generator):
    return draw(DenseOperator(torch.eye(size, dtype=torch.float64)), count, generator)
