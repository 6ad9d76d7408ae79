"""`import skiplens` loads torch, NumPy, SciPy and nothing heavier."""

import subprocess
import sys

import pytest

HEAVY = (
    "dash dask flask gpytorch jinja2 lightning matplotlib pandas PIL plotly pooch rich safetensors sklearn tensorboard "
    "transformers typer zarr"
).split()


def loaded_after(statement: str) -> set[str]:
    """The heavy packages a fresh interpreter has loaded after `statement` but not after `import torch` alone."""
    program = f"import torch, scipy, sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()} & set(HEAVY)


def test_import_is_light():
    assert loaded_after("import skiplens; [getattr(skiplens, name) for name in dir(skiplens)]") == set()


@pytest.mark.parametrize("package", ["jinja2", "PIL"])
def test_the_test_above_would_notice(package):
    assert package in loaded_after(f"import skiplens, {package}")
