"""What can be asked of a Jacobian spectrum."""

from dataclasses import dataclass
from typing import Literal

from skiplens.core.errors import InvalidInputError
from skiplens.core.settings import Settings, option
from skiplens.derivatives.jacobian import Effort

PartName = Literal["block", "branch", "shortcut"]


@dataclass(frozen=True)
class JacobianOptions(Settings):
    """Options of `jacobian_spectrum`."""

    seed: int = option(0, "names the random vectors")
    parts: tuple[PartName, ...] = option(
        ("block", "branch"), "what to look at of each block: itself, its branch (without the shortcut), its shortcut"
    )
    network: bool = option(True, "also the whole network, from its input to its output")
    steps: int = option(80, "Lanczos steps, where not all singular values are computed")
    probes: int = option(4, "random vectors of Lanczos")
    work: float = option(1e12, "floating operations that one exact spectrum may take with method='auto'")
    memory: int | None = option(None, "bytes that may be used; half of what is free if not given")

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        super().__post_init__()
        if self.steps < 1 or self.probes < 1:
            raise InvalidInputError(f"steps={self.steps}, probes={self.probes}; ask for at least 1 of each.")
        if "block" not in self.parts:
            raise InvalidInputError(f"parts={self.parts}; 'block' is always measured, so name it too.")

    def effort(self, coupling: str, method: str) -> Effort:
        """These options for one part of a network."""
        _require("coupling", coupling, ("auto", "sample", "batch"))
        _require("method", method, ("auto", "exact", "lanczos"))
        return Effort(coupling, method, self.steps, self.probes, self.work, self.memory)  # type: ignore[arg-type]  # just checked


def _require(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidInputError(f"{name}={value!r}; ask for one of {', '.join(map(repr, choices))}.")
