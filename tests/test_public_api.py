"""The names people type: they stay. Adding one is a decision, so it is written here too."""

import importlib
import importlib.util
import types
from pathlib import Path

import skiplens as sl

ROOT = Path(__file__).parents[1]
NAMES = {
    "Comparison",
    "DenseNetKernel",
    "Finding",
    "Forecast",
    "HessianSpectrum",
    "JacobianSpectrum",
    "Monitor",
    "PathSpectrum",
    "Report",
    "ResNetKernel",
    "ResidualBlock",
    "VanillaKernel",
    "check_hypotheses",
    "compare",
    "design",
    "empirical_ntk",
    "find_residual_blocks",
    "forecast",
    "hessian_spectrum",
    "improve",
    "infinite_width",
    "initialisation",
    "inspect",
    "jacobian_spectrum",
    "loss_landscape",
    "path_spectrum",
    "rank",
    "surgery",
    "verify",
}
MODULES = {"initialisation", "surgery"}
FOLDERS = set(
    "base cli curvature data edits explorer graph improvement jacobians kernels linalg papers paths plots readings "
    "report signal sweeps tangent task trainability training zoo".split()
)


def test_the_public_names_are_exactly_these():
    public = {name for name in dir(sl) if not name.startswith("_") and name != "VERSION"}
    folders = {name for name in public if isinstance(getattr(sl, name), types.ModuleType)} - {
        "initialisation",
        "surgery",
    }
    assert public - folders == NAMES
    assert folders <= FOLDERS
    assert len(NAMES) <= 30


def test_public_is_what_the_pages_of_the_api_list_and_nothing_went_away():
    """Adding or removing a public name is a decision: write it into tests/public_names.txt (and the changelog)."""
    specification = importlib.util.spec_from_file_location("api_modules", ROOT / "docs/api_modules.py")
    pages = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(pages)
    found = sorted(set(pages.public_names()))
    assert found == (ROOT / "tests/public_names.txt").read_text("utf-8").split()
    for name in found:
        if "gpytorch" in name:  # importing it warns of a deprecation inside GPyTorch
            continue
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name
