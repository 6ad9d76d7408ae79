"""What a monitor looks at, how often, and how much of the run's time it may take."""

from dataclasses import dataclass
from typing import Literal, get_args

from skiplens.core.errors import SettingsError
from skiplens.core.settings import Settings, option

Quantity = Literal["depth", "scales", "weight_norm", "curvature", "jacobians", "kernel"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)


@dataclass(frozen=True)
class MonitorOptions(Settings):
    """Options of `Monitor`."""

    every: int = option(100, "steps between two looks")
    share: float = option(0.05, "share of the run's time that looking may take, divided fairly between the quantities")
    quantities: tuple[Quantity, ...] = option(QUANTITIES, "what to look at; the order is that of measuring")
    samples: int = option(16, "samples of the probe to look at, the first ones")
    statistics: Literal["probe", "running"] = option(
        "probe", "what batch norm divides by while looked at: statistics of the samples looked at, or its running ones"
    )
    products: int = option(20, "Hessian-vector products for the two extreme eigenvalues of a look, at most")
    outputs: int = option(16, "outputs whose tangent kernel is followed; where a model has more, these are drawn")
    levels: tuple[float, ...] = option((0.05, 0.25, 0.5, 0.75, 0.95), "quantiles of the Jacobian's singular values")
    seed: int = option(0, "names the random vectors and the outputs drawn")

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        super().__post_init__()
        least = {"every": 1, "samples": 1, "products": 4, "outputs": 1}
        for name, minimum in least.items():
            if getattr(self, name) < minimum:
                raise SettingsError(f"{name}={getattr(self, name)}; ask for at least {minimum}.")
        if not 0 < self.share < float("inf"):
            raise SettingsError(f"share={self.share}; give a positive number such as 0.05 for 5 % of the run's time.")
        if not self.quantities or len(set(self.quantities)) < len(self.quantities):
            raise SettingsError(
                f"quantities={self.quantities}; name at least one of {', '.join(QUANTITIES)}, each of them once."
            )
        if not self.levels or not all(0 <= level <= 1 for level in self.levels):
            raise SettingsError(f"levels={self.levels}; give shares between 0 and 1.")
