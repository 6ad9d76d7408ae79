"""Many networks of one architecture side by side: what a trainer of them must be able to do."""

from abc import ABC, abstractmethod

from skiplens.core.axes import Int, Tensor
from skiplens.training.batched.plan import Look


class Program(ABC):
    """Networks that are trained together; entry i of every tensor belongs to network i, none to two of them."""

    @abstractmethod
    def advance(self, start: int, stop: int) -> None:
        """Bring all networks from `start` updates to `stop`."""

    @abstractmethod
    def look(self, epoch: int) -> Look:
        """Losses and norms after `epoch` updates, as the networks are now; changes nothing."""

    @abstractmethod
    def parameters(self) -> dict[str, Tensor]:
        """Copies of the parameters by name, networks first."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """The parameters and whatever else a run needs to go on, networks first."""

    @abstractmethod
    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up what `state` gave, for as many networks as it has."""

    @abstractmethod
    def keep(self, nets: Int[Tensor, " kept"]) -> None:
        """Go on with some of the networks; theirs are the numbers they would have had with the others."""
