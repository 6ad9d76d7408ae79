"""What can be asked of a Hessian's spectrum."""

from dataclasses import dataclass
from typing import Literal

from skiplens.core.errors import InvalidInputError
from skiplens.core.settings import Settings, option

Method = Literal["auto", "exact", "lanczos"]
Kind = Literal["hessian", "gauss_newton", "fisher", "empirical_fisher"]


@dataclass(frozen=True)
class SpectrumOptions(Settings):
    """Options of `hessian_spectrum`."""

    method: Method = option("auto", "exact: all eigenvalues; lanczos: extremes and a sampled density; auto chooses")
    kind: Kind = option("hessian", "the matrix: hessian, gauss_newton, fisher or empirical_fisher")
    blocks: bool | tuple[str, ...] = option(
        False, "also the spectrum of each residual block's parameters alone: all blocks, or those named"
    )
    probes: int = option(8, "random vectors behind the density; their scatter is its error")
    steps: int = option(40, "Lanczos steps (products) for each of them")
    extremes: int = option(1, "eigenpairs looked for at each end; 0 takes what the density shows")
    vectors: bool = option(False, "keep the eigenvectors of the extremes in the reading")
    tolerance: float = option(1e-4, "residual at which an extreme is good enough, relative to the largest |eigenvalue|")
    max_products: int = option(500, "products spent on the extremes at most")
    moment_products: int | None = option(
        None,
        "products for trace and Frobenius norm: at least 6, or 0 to take them from the density; chosen if not given",
    )
    seed: int = option(0, "names the random vectors")
    memory: int | None = option(None, "bytes that may be used; half of what is free if not given")

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        super().__post_init__()
        if self.probes < 2 or self.steps < 2:
            raise InvalidInputError(
                f"probes={self.probes} and steps={self.steps}; ask for at least 2 of each: the scatter of the probes "
                "is the error of the density."
            )
        if self.extremes < 0 or self.max_products < 1:
            raise InvalidInputError(
                f"extremes={self.extremes} and max_products={self.max_products}; ask for 0 or more pairs at each end "
                "and at least 1 product."
            )
        if self.moment_products is not None and 0 != self.moment_products < 6:
            raise InvalidInputError(
                f"moment_products={self.moment_products}; ask for at least 6, or for 0 to take trace and norm from the "
                "density."
            )
        if not self.tolerance > 0:
            raise InvalidInputError(f"tolerance={self.tolerance}; the residual to stop at must be positive.")
        if self.vectors and not self.extremes:
            raise InvalidInputError("vectors=True keeps the eigenvectors of the extremes; ask for extremes=1 or more.")
