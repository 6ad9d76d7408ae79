"""The spectrum that a network has: that of its signal, or of its derivative where the signal has none."""

from typing import Any

from skiplens.core.errors import NoFrozenFormError
from skiplens.lenses.paths.spectrum import Request, measure
from skiplens.readings.paths import PathSpectrum
from skiplens.residual import ResidualNetwork


def signal_or_derivative(network: ResidualNetwork, inputs: Any, request: Request) -> tuple[PathSpectrum, str]:
    """The spectrum of the signal and '', or that of the derivative along a direction and why there is no other."""
    try:
        return measure(network, inputs, "signal", request), ""
    except NoFrozenFormError as error:
        return measure(network, inputs, "jacobian", request), str(error).partition(" Ask for")[0]
