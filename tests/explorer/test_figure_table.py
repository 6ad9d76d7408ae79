import csv
import io
import math

import pytest

from skiplens.explorer.exports import csv_text, figure_rows
from skiplens.plots.figure import Band, Bars, Contour, Figure, Heat, Line, Points, Reference, Surface

NAN = float("nan")


@pytest.mark.parametrize(
    ("mark", "rows"),
    [
        (Line((1.0, 2.0), (3.0, NAN), "a"), [("a", "1.0", "3.0"), ("a", "2.0", "")]),
        (Points((1.0,), (3.0,), "p", error=(0.5,), labels=("here",)), [("p", "1.0", "3.0", "0.5", "here")]),
        (Bars(("one", "two"), (1.0, 2.0), "b"), [("b", "one", "1.0"), ("b", "two", "2.0")]),
        (Band((1.0,), (2.0,), (3.0,), "c"), [("c", "1.0", "2.0", "3.0")]),
        (Reference(0.5, "r", "x"), [("r", "0.5")]),
        (
            Heat(((1.0, 2.0), (3.0, 4.0)), "h"),
            [("h", "1", "1", "1.0"), ("h", "2", "1", "2.0"), ("h", "1", "2", "3.0"), ("h", "2", "2", "4.0")],
        ),
        (Contour((1.0,), (2.0,), ((3.0,),), "c"), [("c", "1.0", "2.0", "3.0")]),
        (Surface((1.0,), (2.0,), ((3.0,),), "s"), [("s", "1.0", "2.0", "3.0")]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_every_mark_has_its_numbers_in_the_table(mark, rows):
    text = csv_text(figure_rows(Figure("f", "t", "c", "x", "y", (mark,))))
    _, *read = csv.reader(io.StringIO(text))
    assert [tuple(row) for row in read] == rows


def test_marks_of_several_kinds_share_their_columns():
    figure = Figure("f", "t", "c", "x", "y", (Line((1.0,), (2.0,), "l"), Bars(("b",), (3.0,), "bars")))
    rows = list(csv.DictReader(io.StringIO(csv_text(figure_rows(figure)))))
    assert rows == [
        {"series": "l", "x": "1.0", "y": "2.0", "label": ""},
        {"series": "bars", "x": "", "y": "3.0", "label": "b"},
    ]


def test_numbers_are_written_in_full():
    rows = csv_text([{"x": math.pi}])
    assert float(rows.splitlines()[1]) == math.pi


@pytest.mark.parametrize("word", ["=1+1", "@SUM(A1)", "+1", "-1", "\tx"])
def test_no_word_is_a_formula_for_a_spreadsheet(word):
    (cell,) = list(csv.reader(io.StringIO(csv_text([{"x": word}]))))[1]
    assert cell == f"'{word}"


def test_negative_numbers_are_no_formulas():
    assert csv_text([{"x": -1.5}]) == "x\n-1.5\n"
