import io

import pytest
from PIL import Image

from skiplens.base.errors import InvalidInputError
from skiplens.explorer.exports import exported
from skiplens.explorer.view import Drawing
from skiplens.plots.figure import Figure, Line

DRAWING = Drawing((Figure("f", "Title", "Caption.", "x", "y", (Line((1.0, 2.0), (3.0, 4.0), "l"),)),), rows=({"a": 1},))


def test_a_figure_as_png_is_an_image():
    image = Image.open(io.BytesIO(exported(DRAWING, "f", "png")))
    assert image.format == "PNG" and image.width > 600


def test_a_figure_as_svg_is_a_drawing():
    assert b"<svg" in exported(DRAWING, "f", "svg")


def test_a_figure_as_csv_has_its_numbers():
    assert exported(DRAWING, "f", "csv") == b"series,x,y\nl,1.0,3.0\nl,2.0,4.0\n"


def test_the_table_as_csv():
    assert exported(DRAWING, "table", "csv") == b"a\n1\n"


@pytest.mark.parametrize(
    ("name", "ending", "message"),
    [
        ("f", "exe", r"A view has no .exe files; ask for one of png, svg, csv"),
        ("g", "png", r"there is no figure 'g'. There are: f"),
        ("table", "png", r"there is no figure 'table'"),
    ],
)
def test_what_is_not_there_is_told(name, ending, message):
    with pytest.raises(InvalidInputError, match=message):
        exported(DRAWING, name, ending)


def test_a_drawing_without_figures_says_so():
    with pytest.raises(InvalidInputError, match="There are: none"):
        exported(Drawing(), "f", "csv")
