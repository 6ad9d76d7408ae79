import math

import pytest
import torch

from skiplens.kernels.arc_cosine import angle_of
from skiplens.kernels.infinite_network import Stretch
from skiplens.kernels.tables import Pieces


@pytest.mark.parametrize("stretch", [Stretch(0.0, 0.0), Stretch(0.5, 1.0), Stretch(500.0, 1.0), Stretch(0.1, 300.0)])
def test_places_are_found_again(stretch):
    pieces = Pieces(stretch, 5, 7)
    places = torch.tensor([-0.9, -0.2, 0.7])
    found, place = pieces.locate(angle_of(pieces.correlations(places)))
    assert torch.equal(found, torch.arange(12).unsqueeze(1).expand(12, 3))
    # an angle near π has the absolute rounding of π, a place is at most (1 + stretch)·pieces times that
    torch.testing.assert_close(place, places.expand(12, 3), rtol=0, atol=1e-15 * 14 * (1 + max(stretch)) * 10)


def test_both_ends_belong_to_the_outer_pieces():
    pieces = Pieces(Stretch(3.0, 2.0), 4, 4)
    found, place = pieces.locate(torch.tensor([0.0, math.pi]))
    assert found.tolist() == [0, 7] and place.tolist() == pytest.approx([-1, 1])


def test_pieces_are_short_where_the_stretch_is_large():
    angles = angle_of(Pieces(Stretch(100.0, 1e-3), 8, 8).correlations(torch.tensor([-1.0])))[:, 0]
    lengths = angles.diff()
    assert lengths[0] < lengths[6] / 30 and lengths[8] == pytest.approx(float(lengths[-1]), rel=1e-2)
