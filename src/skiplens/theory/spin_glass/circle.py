"""Critical points of a spin glass with two spins: roots of a trigonometric polynomial, so none is missed."""

import math

import numpy as np
import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.theory.spin_glass.hamiltonian import SpinGlass

_ON_CIRCLE = 1e-7  # how far from modulus 1 a root may lie: rounding moves it by about the root of an ulp at near-ties


def critical_angles(glass: SpinGlass) -> Float[Tensor, " critical"]:
    """Angles φ at which the energy of √2 (cos φ, sin φ) is stationary, ascending in [0, 2π)."""
    order = glass.mixture.order
    samples = 2 * order + 1
    angles = 2 * math.pi * torch.arange(samples, dtype=torch.float64) / samples
    points = math.sqrt(2) * torch.stack([angles.cos(), angles.sin()], 1).to(glass.couplings[0].device)
    spectrum = np.fft.fft(glass.energy(points).cpu().numpy()) / samples
    frequency = np.arange(-order, order + 1)
    slope = 1j * frequency * spectrum[frequency]  # Fourier coefficients of dH/dφ; times z^p, a polynomial in z = e^{iφ}
    roots = np.roots(slope[::-1])
    on_circle = roots[np.abs(np.abs(roots) - 1) < _ON_CIRCLE]
    return torch.from_numpy(np.sort(np.angle(on_circle) % (2 * math.pi))).to(points.device)
