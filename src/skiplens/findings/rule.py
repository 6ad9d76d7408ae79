"""A rule: a pure function from readings to findings, and the readings that it cannot do without."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from skiplens.findings.finding import Finding
from skiplens.readings import Reading


@dataclass(frozen=True)
class Rule:
    """Judges one thing.

    Attributes:
        name: What findings of the rule are called.
        needs: Kinds of readings; the rule is silent where one of them was not taken.
        judge: Called with these readings, in order.
    """

    name: str
    needs: tuple[type[Reading], ...]
    judge: Callable[..., Iterable[Finding]]

    def __call__(self, readings: Sequence[Reading]) -> list[Finding]:
        """The findings of this rule."""
        found = [next((reading for reading in readings if type(reading) is kind), None) for kind in self.needs]
        return [] if any(reading is None for reading in found) else list(self.judge(*found))
