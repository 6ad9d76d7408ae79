import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.papers.statistics import against, chosen, stacked, values
from skiplens.readings.reading import Measurement, Provenance


def measurement(measure: str, number: float, **settings: object) -> Measurement:
    return Measurement(
        name=f"somewhere:{measure}", arrays={"x": torch.tensor([number])}, provenance=Provenance(settings=settings)
    )


@pytest.fixture
def readings() -> list[Measurement]:
    return [
        measurement("weigh", 1.0, depth=20, replicate=0),
        measurement("weigh", 2.0, depth=20, replicate=1),
        measurement("weigh", 3.0, depth=5, replicate=0),
        measurement("count", 4.0, width=7),
    ]


def test_readings_by_measure_and_settings(readings):
    assert len(chosen(readings)) == 4
    assert [float(one["x"]) for one in chosen(readings, "weigh", depth=20)] == [1.0, 2.0]
    assert stacked(readings, "x", "weigh", replicate=0).tolist() == [[1.0], [3.0]]
    assert values(readings, "depth", "weigh") == [5, 20]


def test_an_array_against_a_setting(readings):
    depths, found = against([*readings, measurement("weigh", 5.0, depth=5, replicate=1)], "x", "depth", "weigh")
    assert depths == [5, 20]
    assert found[..., 0].tolist() == [[3.0, 1.0], [5.0, 2.0]]


def test_nothing_chosen_is_told(readings):
    with pytest.raises(InvalidInputError, match=r"No run of weigh has {'depth': 6}; the item's runs lack it"):
        chosen(readings, "weigh", depth=6)
