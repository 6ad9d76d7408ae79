import re

import pytest
import torch

from skiplens.report.lenses import find
from skiplens.tangent.comparison import equivalent_network
from tests.report.readings import signal, tangent


def test_a_kernel_of_ten_thousand_is_a_note_and_a_singular_one_is_no_fault():
    assert find([tangent([1.0, 2e-4])]) == ()
    (ill,) = find([tangent([1.0, 5e-5])])
    assert ill.severity == "note" and ill.number == pytest.approx(2e4)
    assert find([tangent([1.0, 0.0])]) == ()


def test_the_equivalent_network_has_the_measured_branch_size():
    network = equivalent_network(signal(blocks=10, branch_norms=torch.full((10,), 0.3)))
    assert (network.depth, network.width, network.branch_depth) == (10, 64, 2)
    assert network.branch_scale == pytest.approx(0.3)  # α^m is the power 0.3² that a branch adds


def test_the_variance_is_that_of_the_reference_table():
    """R(L=3, m=2, α=.5, n=8): V = 906344775/134217728 at E𝒢 = 2.34375, a relative variance of 1.229."""
    three = {"branch_norms": torch.full((3,), 0.5), "widths": torch.full((3,), 8)}
    (found,) = find([signal(blocks=3, **three)])
    assert found.rule == "kernel_regime" and found.severity == "note"
    assert found.number == pytest.approx(906344775 / 134217728 / 2.34375**2)
    assert find([signal(blocks=3, **(three | {"widths": torch.full((3,), 80)}))]) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"normalised": (True,) * 8},
        {"branch_norms": torch.zeros(8)},
        {"broken": ("output",)},
        {"widths": torch.zeros(8)},
    ],
    ids=["normalised", "no branch", "not finite", "no matrix"],
)
def test_theory_knows_no_such_network(changes):
    assert equivalent_network(signal(**changes)) is None


def test_matrices_are_to_be_multiplied_until_the_branches_add_one_in_all():
    """α multiplies the power that a matrix passes, so that matrices are multiplied by the root of its change."""
    sizes = {"branch_norms": torch.full((10,), 0.9), "widths": torch.full((10,), 8)}
    change = next(f.change for f in find([signal(blocks=10, **sizes)]) if f.rule == "kernel_regime")
    factor = float(re.search(r"Multiply each matrix of the branches by ([\d.]+), which leaves", change)[1])
    assert 0.9 * factor**2 == pytest.approx(10**-0.5, rel=5e-3)  # two matrices; in_words has three digits


def test_branches_that_are_small_enough_are_left_alone():
    sizes = {"branch_norms": torch.full((3,), 0.5), "widths": torch.full((3,), 8)}
    (found,) = find([signal(blocks=3, **sizes)])
    assert found.change.startswith("Use a width of ")


def test_no_reasonable_width_is_said():
    (found,) = (
        f for f in find([signal(blocks=400, branch_norms=torch.full((400,), 30.0))]) if f.rule == "kernel_regime"
    )
    assert "width" in found.change
