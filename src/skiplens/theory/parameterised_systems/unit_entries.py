"""Entries divided by sqrt(ε + w²) with first and second derivative."""

from skiplens.core.axes import Tensor


def unit_entries(entries: Tensor, epsilon: float) -> Tensor:
    """Each entry w as w (ε + w²)^(−1/2)."""
    return entries * (epsilon + entries.square()) ** -0.5


def unit_entries_derivative(entries: Tensor, epsilon: float) -> Tensor:
    """The derivative of each entry, ε (ε + w²)^(−3/2) (equation 32)."""
    return epsilon * (epsilon + entries.square()) ** -1.5


def unit_entries_second_derivative(entries: Tensor, epsilon: float) -> Tensor:
    """The second derivative of each entry, −3 ε w (ε + w²)^(−5/2); equation 33 prints the exponent 3/2."""
    return -3 * epsilon * entries * (epsilon + entries.square()) ** -2.5
