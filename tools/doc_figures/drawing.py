"""Write the pictures of a page: the command line that the scripts of this folder share."""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

from skiplens.base.optional_imports import optional_import
from skiplens.plots.figure import Figure
from skiplens.plots.matplotlib_file import save_figure

FOLDER = Path(__file__).parents[2] / "docs/images"


def draw(figures: Iterable[Figure], prefix: str, description: str | None) -> None:
    """Write each figure as `<prefix><name>.svg` (and PNG if asked) into the folder that the command names."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--png", action="store_true", help="write PNG files beside the SVG files")
    options = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # no date in the files
    matplotlib = optional_import("matplotlib", "drawing the documentation's figures")
    with matplotlib.rc_context({"svg.hashsalt": "skiplens"}):
        for figure in figures:
            for ending in ("svg", "png") if options.png else ("svg",):
                save_figure(figure, options.folder / f"{prefix}{figure.name}.{ending}")
