"""Energies of given points of a spin glass, drawn from their joint law: any number of spins, any order."""

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError
from skiplens.core.memory import budget_bytes, require_fits
from skiplens.theory.spin_glass.mixture import Mixture


def energy_covariance(mixture: Mixture, points: Float[Tensor, "points spins"]) -> Float[Tensor, "points points"]:
    """E H(w_i) H(w_j) = Λ ν(⟨w_i, w_j⟩/Λ)."""
    dimension = points.shape[1]
    return dimension * mixture.covariance(points @ points.T / dimension)


def sample_energies(
    mixture: Mixture, points: Float[Tensor, "points spins"], generator: torch.Generator, draws: int = 1
) -> Float[Tensor, "draws points"]:
    """Energies of the points in `draws` independent spin glasses; the couplings are never made.

    Args:
        mixture: The weights ε_r.
        points: Points of R^Λ, all together: points of two calls belong to different spin glasses.
        generator: Where the randomness comes from, on the device of the points.
        draws: How many spin glasses.
    """
    if points.ndim != 2 or not len(points) or draws < 1:
        raise InvalidInputError(
            f"sample_energies needs points of shape (points, spins) and draws >= 1; got {tuple(points.shape)} "
            f"and draws={draws}."
        )
    require_fits(
        4 * 8 * len(points) ** 2,
        f"The joint law of {len(points)} points",
        "Ask for fewer points at a time.",
        budget_bytes(points.device),
    )
    eigenvalues, Q = torch.linalg.eigh(energy_covariance(mixture, points.double()))
    root = Q * eigenvalues.clamp(min=0).sqrt()  # points may coincide, so the covariance may be singular
    noise = torch.randn(draws, len(points), generator=generator, device=points.device, dtype=torch.float64)
    return (noise @ root.T).to(points.dtype)
