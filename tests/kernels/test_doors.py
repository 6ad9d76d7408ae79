"""Adapters are behind doors: importing the kernels loads none of the packages they adapt to."""

import subprocess
import sys

import pytest

from skiplens import kernels
from skiplens.base import optional_imports
from skiplens.base.errors import MissingDependencyError

HEAVY = ("sklearn", "gpytorch", "zarr")


def loaded_after(statement):
    code = f"{statement}\nimport sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_importing_the_kernels_is_light():
    assert loaded_after("import skiplens.kernels").strip() == "[]"


def test_the_test_above_can_fail():
    assert "sklearn" in loaded_after("from skiplens.kernels import ResidualKernel")


@pytest.mark.parametrize(
    ("name", "package"),
    [("ResidualKernel", "sklearn"), ("ResidualKernelRegressor", "sklearn"), ("GPyTorchResidualKernel", "gpytorch")],
)
def test_a_missing_package_is_named(name, package, monkeypatch):
    def missing(module):
        raise ImportError(f"No module named {module!r}")

    monkeypatch.setattr(optional_imports.importlib, "import_module", missing)
    with pytest.raises(MissingDependencyError, match=rf"{package} is needed for {name} .*skiplens\[{package}\]"):
        getattr(kernels, name)


def test_other_names_are_unknown_and_adapters_are_listed():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = kernels.Nothing
    assert {"ResidualKernel", "GPyTorchResidualKernel", "gram"} <= set(dir(kernels))
