"""Readings as figures: described once, drawn by Matplotlib (files) and by Plotly (the page)."""

from skiplens.plots.figure import Band as Band
from skiplens.plots.figure import Bars as Bars
from skiplens.plots.figure import Contour as Contour
from skiplens.plots.figure import Figure as Figure
from skiplens.plots.figure import Heat as Heat
from skiplens.plots.figure import Line as Line
from skiplens.plots.figure import Points as Points
from skiplens.plots.figure import Reference as Reference
from skiplens.plots.figure import Surface as Surface
