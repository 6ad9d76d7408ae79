"""MkDocs hook: a report to click through and its drawing, made by the present code from what was measured.

`make docs-figures` measures again and writes `live/report.json.gz`; the page of 2.6 megabytes is in no repository.
"""

import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skiplens.improvement.drawing import drawing_of
from skiplens.report.inspection import Report
from skiplens.report.notebook import network_svg

LIVE = Path(__file__).parent / "live"


def on_files(files: Any, config: Any) -> Any:
    """The files of the site with those that are made here."""
    from mkdocs.structure.files import File

    for name, content in made():
        files.append(File.generated(config, name, content=content))
    return files


def made() -> Iterator[tuple[str, str]]:
    """Name and content of each file: the page and the drawing of every report beside this hook."""
    with tempfile.TemporaryDirectory() as folder:
        for packed in sorted(LIVE.glob("*.json.gz")):
            name, beside = packed.name.removesuffix(".json.gz"), Path(folder)
            (beside / "readings.json").write_bytes(gzip.decompress(packed.read_bytes()))
            report = Report.load(beside)
            yield f"live/{name}.html", report.to_html()
            drawing = drawing_of(report.readings, report.findings)
            if drawing is not None:
                yield f"live/{name}.svg", network_svg(drawing, f"{report.title}: {report.verdict}")
