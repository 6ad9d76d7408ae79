"""See what skip connections do to your network."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skiplens.base.version import VERSION

if TYPE_CHECKING:
    # Surgery: the changes that the papers recommend
    from skiplens import surgery as surgery

    # Curvature: how well conditioned a loss is
    from skiplens.curvature import hessian_spectrum as hessian_spectrum
    from skiplens.curvature import loss_landscape as loss_landscape
    from skiplens.curvature.reading import HessianSpectrum as HessianSpectrum
    from skiplens.edits import initialisation as initialisation

    # Structure: what a network is made of, and new networks made from it
    from skiplens.graph import ResidualBlock as ResidualBlock
    from skiplens.graph import find_residual_blocks as find_residual_blocks

    # Improvement: a network that trains better, and the proof
    from skiplens.improvement import design as design
    from skiplens.improvement import improve as improve

    # Jacobians: whether layers keep the gradient alive
    from skiplens.jacobians import check_hypotheses as check_hypotheses
    from skiplens.jacobians import jacobian_spectrum as jacobian_spectrum
    from skiplens.jacobians.reading import JacobianSpectrum as JacobianSpectrum
    from skiplens.kernels import DenseNetKernel as DenseNetKernel
    from skiplens.kernels import ResNetKernel as ResNetKernel
    from skiplens.kernels import VanillaKernel as VanillaKernel
    from skiplens.kernels import infinite_width as infinite_width

    # Paths: how deep a network is
    from skiplens.paths import path_spectrum as path_spectrum
    from skiplens.paths.reading import PathSpectrum as PathSpectrum

    # The whole picture
    from skiplens.readings import Finding as Finding
    from skiplens.report import Comparison as Comparison
    from skiplens.report import Report as Report
    from skiplens.report import compare as compare
    from skiplens.report import inspect as inspect
    from skiplens.report import verify as verify

    # During training
    from skiplens.report.during_training.monitor import Monitor as Monitor

    # Tangent: kernels of finite and of infinitely wide networks
    from skiplens.tangent.empirical import empirical_ntk as empirical_ntk

    # Trainability: will it train, how low, at which rate
    from skiplens.trainability import Forecast as Forecast
    from skiplens.trainability import forecast as forecast
    from skiplens.trainability import rank as rank

__version__ = VERSION

# Where each name above is. It is loaded when it is first asked for, so that `skiplens --help` does not wait for torch.
_NAMES = {
    "skiplens.curvature": "hessian_spectrum loss_landscape",
    "skiplens.curvature.reading": "HessianSpectrum",
    "skiplens.edits": "initialisation",
    "skiplens.graph": "ResidualBlock find_residual_blocks",
    "skiplens.improvement": "design improve",
    "skiplens.jacobians": "check_hypotheses jacobian_spectrum",
    "skiplens.jacobians.reading": "JacobianSpectrum",
    "skiplens.kernels": "DenseNetKernel ResNetKernel VanillaKernel infinite_width",
    "skiplens.paths": "path_spectrum",
    "skiplens.paths.reading": "PathSpectrum",
    "skiplens.readings": "Finding",
    "skiplens.report": "Comparison Report compare inspect verify",
    "skiplens.report.during_training.monitor": "Monitor",
    "skiplens.tangent.empirical": "empirical_ntk",
    "skiplens.trainability": "Forecast forecast rank",
}
_PLACES = {name: place for place, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The public name, or the folder of that name."""
        if name.startswith("_"):
            raise AttributeError(f"module 'skiplens' has no attribute {name!r}")
        place = _PLACES.get(name, f"skiplens.{name}")
        try:
            module = import_module(place)
        except ModuleNotFoundError as error:
            if error.name != place:
                raise
            raise AttributeError(f"module 'skiplens' has no attribute {name!r}") from None
        globals()[name] = getattr(module, name) if name in _PLACES else module
        return globals()[name]

    def __dir__() -> list[str]:
        """The public names, also those that are not loaded yet, and the folders that are."""
        return sorted({*globals(), *_PLACES, "surgery"} - {"Any", "TYPE_CHECKING", "import_module"})
