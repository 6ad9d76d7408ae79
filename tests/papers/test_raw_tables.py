import torch

from skiplens.papers.reproduction import csv_text
from skiplens.papers.statistics import entries, raw_tables
from skiplens.readings.reading import Measurement, Provenance


def reading(name: str, settings: dict, **arrays: torch.Tensor) -> Measurement:
    return Measurement(name=f"package.module:{name}", arrays=arrays, provenance=Provenance.begin(settings, 0).end())


def test_one_row_for_each_place_and_numbers_are_repeated():
    found = entries(
        reading("norms", {}, epoch=torch.tensor([0, 5]), norm=torch.tensor([1.0, 2.0]), depth=torch.tensor(3))
    )
    assert found == [{"epoch": 0, "norm": 1.0, "depth": 3}, {"epoch": 5, "norm": 2.0, "depth": 3}]


def test_further_axes_become_columns():
    found = entries(reading("weights", {}, W=torch.arange(4.0).reshape(2, 2)))
    assert found == [{"W_0": 0.0, "W_1": 1.0}, {"W_0": 2.0, "W_1": 3.0}]


def test_single_numbers_make_one_row():
    assert entries(reading("error", {}, error=torch.tensor(0.5))) == [{"error": 0.5}]


def test_one_table_for_each_measure_with_the_settings_of_its_runs():
    readings = [
        reading("a", {"depth": 2}, value=torch.tensor([1.0, 2.0])),
        reading("b", {"width": 7}, other=torch.tensor(3.0)),
        reading("a", {"depth": 4}, value=torch.tensor([5.0])),
    ]
    first, second = raw_tables(readings)
    assert (first.name, second.name) == ("a", "b")
    assert csv_text(first) == "depth,index,value\n2,0,1.0\n2,1,2.0\n4,0,5.0\n"
    assert csv_text(second) == "width,index,other\n7,0,3.0\n"
