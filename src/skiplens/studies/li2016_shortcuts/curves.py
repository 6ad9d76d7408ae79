"""A series of a figure, as the paper draws them."""

from skiplens.studies.curves import curve as curve
