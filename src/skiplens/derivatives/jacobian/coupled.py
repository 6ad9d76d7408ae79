"""All singular values of a Jacobian that couples samples through few numbers: block diagonal plus low rank."""

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import DidNotConverge
from skiplens.core.progress import Progress, silent
from skiplens.derivatives.jacobian.linearised import Linearised
from skiplens.derivatives.jacobian.per_sample import sample_jacobians
from skiplens.linalg.low_rank_update import updated_eigenvalues

_SPARE = 8
"""Random vectors beyond the rank, so that the span of their images is the whole range to working precision."""


def coupled_singular_values(
    coupled: Linearised,
    frozen: Linearised,
    samples: int,
    rank: int,
    generator: torch.Generator,
    progress: Progress = silent,
) -> Float[Tensor, " values"]:
    """All singular values of the Jacobian of a whole batch, descending, without ever forming it.

    Batch norm couples samples through the mean and the scale of each channel, two numbers. So the Jacobian is that with
    frozen statistics, block diagonal over samples, plus a matrix E of rank at most two for each channel. The blocks are
    diagonalised sample by sample; E is found by a few products with random vectors, and added by secular equations.
    Values below 1e-8 of the largest one come out as noise of that size, as from any Gram matrix in float64.

    Args:
        coupled: The function of the batch.
        frozen: The same with frozen statistics.
        samples: Number of samples, the first axis of input and output.
        rank: A bound on the rank of the difference: two for each channel of each batch norm.
        generator: Source of the random vectors.
        progress: Called as the work goes on.
    """
    U, V = _difference(coupled, frozen, rank, generator)
    blocks = sample_jacobians(frozen, samples).double()
    if coupled.rows > coupled.columns:  # the Gram matrix on the smaller side
        blocks, U, V = blocks.mT, V, U
    values, vectors = torch.linalg.eigh(blocks @ blocks.mT)
    # (A + U Vᵀ)(A + U Vᵀ)ᵀ = A Aᵀ + A V Uᵀ + U (A V)ᵀ + U VᵀV Uᵀ
    images = (blocks @ V.reshape(samples, -1, V.shape[1])).flatten(0, 1)
    factors = torch.cat([images, U], dim=1).reshape(samples, -1, 2 * U.shape[1])
    eye = torch.eye(U.shape[1], dtype=U.dtype, device=U.device)
    core = torch.cat([torch.cat([0 * eye, eye], 1), torch.cat([eye, V.T @ V], 1)])
    eigenvalues = updated_eigenvalues(values.flatten(), (vectors.mT @ factors).flatten(0, 1), core, progress)
    return eigenvalues.clamp_min(0).sqrt().flip(0)


def _difference(
    coupled: Linearised, frozen: Linearised, rank: int, generator: torch.Generator
) -> tuple[Float[Tensor, "rows rank"], Float[Tensor, "columns rank"]]:
    """U with orthonormal columns and V such that J = J_frozen + U Vᵀ, in float64."""

    def image(probes: Tensor) -> Tensor:
        return coupled.forward(probes) - frozen.forward(probes)

    count = min(rank + _SPARE, coupled.rows, coupled.columns)
    draws = torch.randn((count + 1, coupled.columns), generator=generator, device=generator.device)
    probes = draws.to(coupled.device, coupled.dtype)
    images = image(probes).double().T
    left, sizes, _ = torch.linalg.svd(images[:, :count], full_matrices=False)
    noise = 100 * torch.finfo(coupled.dtype).eps * (sizes[0] + frozen.forward(probes[:1]).norm())
    U = left[:, sizes > noise][:, :rank]
    fresh = images[:, count]
    if float((fresh - U @ (U.T @ fresh)).norm()) > 10 * float(noise):
        raise DidNotConverge(
            f"The coupling of samples has more than the expected rank of {rank}: something other than batch norm "
            "couples them. Ask for method='lanczos'."
        )
    vectors = U.T.to(coupled.dtype)
    return U, (coupled.adjoint(vectors) - frozen.adjoint(vectors)).double().T
