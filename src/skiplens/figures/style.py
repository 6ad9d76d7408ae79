"""Colours and sizes, once for every figure."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
"""Okabe and Ito's colours, told apart by colour-blind readers, readable on white and on black."""

REFERENCE_COLOUR = "#7F7F7F"
MISSING_COLOUR = "#BFBFBF"
"""Behind contours: where there is nothing to draw, this is seen."""
LEVELS = 21

INK = "ink"
"""The colour of the text, whatever it is: a page has a light and a dark look."""

FAINT = 0.35
"""Opacity of one line of many."""

SIZE_IN_INCHES = (6.4, 4.0)
DOTS_PER_INCH = 150
MOST_LABELLED_BARS = 24


def colour(index: int) -> str:
    """The colour of the index-th series."""
    return PALETTE[index % len(PALETTE)]
