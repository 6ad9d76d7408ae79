"""The names people type: they stay. Adding one is a decision, so it is written here too."""

import types

import skiplens as sl

NAMES = {
    "DenseNetKernel",
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
    "empirical_ntk",
    "find_residual_blocks",
    "hessian_spectrum",
    "initialisation",
    "inspect",
    "jacobian_spectrum",
    "loss_landscape",
    "path_spectrum",
    "surgery",
    "verify",
}
MODULES = {"initialisation", "surgery"}
FOLDERS = set(
    "base cli curvature data edits explorer graph jacobians kernels linalg papers paths plots readings report signal "
    "sweeps tangent training zoo".split()
)


def test_the_public_names_are_exactly_these():
    public = {name for name in dir(sl) if not name.startswith("_") and name != "VERSION"}
    folders = {name for name in public if isinstance(getattr(sl, name), types.ModuleType)} - {
        "initialisation",
        "surgery",
    }
    assert public - folders == NAMES
    assert folders <= FOLDERS
    assert len(NAMES) <= 25
