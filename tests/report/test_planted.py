"""Faults planted into a healthy network are found, and the remedy removes the finding."""

import copy

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.base.randomness import Randomness
from skiplens.edits.remedies import apply_remedy
from skiplens.zoo.weight_laws import fill_weights_, he_weights

DATA = (
    torch.randn(32, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
    torch.arange(32) % 4,
)


class Block(nn.Module):
    """x + W₃ ReLU(W₂ ReLU(W₁ x))."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third = self.layers
        return x + third(torch.relu(second(torch.relu(first(x)))))


def healthy() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(8, 24), *(Block() for _ in range(6)), nn.Linear(24, 4))
    fill_weights_(net, he_weights, Randomness(0))
    with torch.no_grad():
        for block in net[1:7]:
            block.layers[2].weight.mul_(6**-0.5)
    return net


@torch.no_grad()
def exploding(net: nn.Sequential) -> None:
    for block in net[1:7]:
        block.layers[2].weight.mul_(8)


@torch.no_grad()
def flat(net: nn.Sequential) -> None:
    for block in net[1:7]:
        for layer in block.layers:
            layer.weight.mul_(1e-3)


@torch.no_grad()
def dead(net: nn.Sequential) -> None:
    net[3].layers[1].bias.fill_(-1e6)


@torch.no_grad()
def stuck_at_zero(net: nn.Sequential) -> None:
    for layer in net[2].layers[1:]:
        layer.weight.zero_()


def findings_of(net: nn.Module):
    return {
        found.rule: found for found in sl.inspect(net, DATA, lenses=["structure"]).findings if found.severity != "note"
    }


def test_without_a_fault_the_network_is_healthy():
    assert findings_of(healthy()) == {}


@pytest.mark.parametrize(
    ("fault", "rule", "severity"),
    [
        (exploding, "signal_growth", "warning"),
        (flat, "flat_branches", "critical"),
        (dead, "dead_branches", "critical"),
        (stuck_at_zero, "dead_branches", "critical"),
    ],
    ids=lambda entry: getattr(entry, "__name__", ""),
)
def test_a_fault_is_found_and_its_remedy_removes_it(fault, rule, severity):
    net = healthy()
    fault(net)
    found = findings_of(net)
    assert found[rule].severity == severity
    assert findings_of(apply_remedy(found[rule].remedy, net)) == {}
    pasted = copy.deepcopy(net)
    exec(found[rule].code, {"model": pasted})
    assert findings_of(pasted) == {}


def test_two_faults_are_both_found():
    net = healthy()
    exploding(net)
    dead(net)
    assert {"signal_growth", "dead_branches"} <= set(findings_of(net))
