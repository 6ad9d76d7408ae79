"""Every example runs as a user runs it and prints what it promises."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PROMISED = {
    "better_shortcuts": ["block2.residual: median singular value", "pools: block2.residual.shortcut"],
    "embedded_data": ["(2000, 1, 28, 28)", "first labels [5, 0, 4, 1, 9", "ten whitened components: (2000, 10)"],
    "empirical_kernel": ["width  512: relative distance to the infinite-width kernel 0."],
    "find_blocks": ["0 0: identity shortcut, 2 weight matrices", "1 1: projection shortcut", "1.up.weight"],
    "finite_width_advice": ["branch_scale 0.1414", "width for ± 10 %"],
    "hessian_spectrum": ["exact: 170 eigenvalues", "0% of the directions lead down", "lanczos: 67,362 parameters"],
    "hugging_face_model": ["6 residual blocks in 3 layers", "h.2.mlp: identity shortcut"],
    "inspect_from_python": ["8 residual blocks", "figures, readings.json, report.html"],
    "loss_landscape": ["along the eigenvector of", "5 x 5 points", "drawn: loss_surface"],
    "monitor_training": ["step  0: mean depth 1.", "step 40: mean depth 1.", "looking took"],
    "training_run": ["interrupted after 12 steps", "bit for bit: True", "test accuracy 0.", "step 20: mean norm"],
    "kernel_regression": ["DenseNet, ridge", "of the last 1,000 digits right", "1000 blocks: kernel of 2,000 digits"],
}
QUICK = {"embedded_data", "find_blocks", "finite_width_advice"}
"""The others run in the slow tier; that every import of theirs is right is tested here."""


def _marked(name: str):
    return name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)


def test_every_example_has_a_promise():
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted(PROMISED)


@pytest.mark.parametrize("name", PROMISED)
def test_example_imports_what_is_there(name):
    for node in ast.walk(ast.parse((EXAMPLES / f"{name}.py").read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("skiplens"):
            module = importlib.import_module(node.module)
            assert all(hasattr(module, entry.name) for entry in node.names)


@pytest.mark.parametrize("name", [_marked(name) for name in PROMISED])
def test_example_runs(name, tmp_path):
    printed = run(EXAMPLES / f"{name}.py", tmp_path)
    for words in PROMISED[name]:
        assert words in printed


def test_a_broken_example_would_be_noticed(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no such thing')")
    with pytest.raises(AssertionError, match="no such thing"):
        run(broken, tmp_path)


def run(script: Path, folder: Path) -> str:
    """What the script prints; a failure shows what it said."""
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
