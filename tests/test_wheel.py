"""The wheel holds everything that is not code: the embedded images, the templates, the type marker."""

import subprocess
import sys
import zipfile
from pathlib import Path

PROJECT = Path(__file__).parents[1]


def test_the_wheel_is_whole(tmp_path):
    build = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    names = zipfile.ZipFile(tmp_path / done.stdout.split()[-1]).namelist()
    source = PROJECT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "skiplens").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= set(names)
    for data in ("skiplens/py.typed", "skiplens/report/templates/report.html.j2", "skiplens/data/sample/NOTICE.md"):
        assert data in names
