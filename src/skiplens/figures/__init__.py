"""Readings as figures: described once, drawn by Matplotlib (files) and by Plotly (the page)."""

from skiplens.figures.catalogue import figures_of as figures_of
from skiplens.figures.figure import Band as Band
from skiplens.figures.figure import Bars as Bars
from skiplens.figures.figure import Contour as Contour
from skiplens.figures.figure import Figure as Figure
from skiplens.figures.figure import Heat as Heat
from skiplens.figures.figure import Line as Line
from skiplens.figures.figure import Points as Points
from skiplens.figures.figure import Reference as Reference
from skiplens.figures.figure import Surface as Surface
