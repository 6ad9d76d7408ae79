import torch

from skiplens.jacobians.reading import JacobianSpectrum
from skiplens.jacobians.report import RULES
from tests.sample_readings import structure

PROJECTIONS, DIRECTIONS = RULES


def jacobians(lost_first: int, lost_second: int) -> JacobianSpectrum:
    """Two blocks of ten directions each, of which some are lost."""
    values = {
        name: torch.tensor([1.0] * (10 - lost) + [0.0] * lost) for name, lost in (("a", lost_first), ("b", lost_second))
    }
    shares = {name: torch.full((10,), 0.1) for name in values}
    return JacobianSpectrum(
        singular_values=values,
        weights=shares,
        without_shortcut=values,
        without_shortcut_weights=shares,
        counts=(10, 10),
        methods=("exact", "exact"),
        samples=1,
        coupled=False,
    )


def test_projections_are_noted_by_name():
    (found,) = PROJECTIONS([structure(4)])
    assert found.severity == "note" and found.where == ("b", "d") and "2 shortcuts are projections" in found.sentence
    assert found.remedy.parameters["blocks"] == ("b", "d")
    assert PROJECTIONS([structure(shortcuts=("identity", "pooling"))]) == []


def test_directions_lost_by_a_projection_are_a_note():
    (found,) = DIRECTIONS([jacobians(0, 3), structure(2)])
    assert found.severity == "note" and found.where == ("b",) and "Block b loses 30 %" in found.sentence
    assert found.remedy.parameters["blocks"] == ("b",)


def test_directions_lost_beside_an_identity_are_a_warning():
    (found,) = DIRECTIONS([jacobians(5, 2), structure(2)])
    assert found.severity == "warning" and "Block a loses 50 %" in found.sentence and "so do b" in found.sentence


def test_nothing_lost_nothing_said():
    assert DIRECTIONS([jacobians(0, 0), structure(2)]) == []
    assert DIRECTIONS([structure(2)]) == []
