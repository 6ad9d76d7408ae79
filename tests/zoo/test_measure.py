import torch
from torch import nn

from skiplens.zoo.catalogue import count_parameters, weight_depth
from skiplens.zoo.layers import Residual


def test_parameters_are_counted_once():
    shared = nn.Linear(3, 3)
    assert count_parameters(nn.Sequential(shared, shared)) == 12


def test_depth_is_that_of_the_longest_path():
    branch = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.Linear(3, 3))
    assert weight_depth(nn.Sequential(nn.Linear(3, 3), Residual(branch, nn.Linear(3, 3)))) == 4
    assert weight_depth(nn.Sequential(nn.Linear(3, 3), Residual(nn.Tanh(), branch))) == 4


def test_parallel_layers_count_once():
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.left(inputs), self.right(inputs)], dim=-1)

    assert weight_depth(Parallel()) == 1


def test_a_network_without_weights_has_depth_zero():
    assert weight_depth(nn.Sequential(nn.ReLU())) == 0
