"""What looking costs, and whether the next look may be paid for."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

Clock = Callable[[], float]


class Ledger:
    """Accounts of seconds: one for each quantity, and one for what they share.

    `share` times the seconds of the run is divided fairly: a quantity that needs less than an equal part takes what it
    needs, and those that need more divide the rest equally. So an expensive one is seen less often and takes nothing
    from the cheap ones. The first measurement of a quantity is always made; later ones wait until the run has lasted
    long enough to pay for it and for themselves.

    Attributes:
        share: The share of the run's time that may be spent.
        spent: Seconds spent on each quantity.
        last: What the last measurement of a quantity took; none before the first.
        shared: Seconds spent on what no single quantity needed.
        in_vain: Seconds spent on what could not be measured.
    """

    def __init__(self, share: float, names: Iterable[str], clock: Clock = time.perf_counter) -> None:
        self.share, self.shared, self.in_vain = share, 0.0, 0.0
        self.spent = dict.fromkeys(names, 0.0)
        self.last: dict[str, float] = {}
        self._open = list(self.spent)
        self._clock = clock
        self._run_before = 0.0
        self._own_before = 0.0
        self._began: float | None = None
        self._ended: float | None = None

    @property
    def open(self) -> tuple[str, ...]:
        """The quantities that are measured."""
        return tuple(self._open)

    def begin(self, run_seconds: float = 0.0) -> None:
        """Start the clock of the run, which has lasted `run_seconds` already."""
        self._run_before, self._own_before = run_seconds, self.own_seconds
        self._began, self._ended = self._clock(), None

    def end(self) -> None:
        """Stop the clock of the run."""
        self._ended = self._clock()

    @property
    def own_seconds(self) -> float:
        """Seconds spent in all."""
        return self.shared + self.in_vain + sum(self.spent.values())

    @property
    def run_seconds(self) -> float:
        """Seconds of the run without those spent on looking."""
        if self._began is None:
            return self._run_before
        now = self._clock() if self._ended is None else self._ended
        return self._run_before + now - self._began - (self.own_seconds - self._own_before)

    def affordable(self) -> list[str]:
        """The quantities that may be measured now, if each takes as long as it did last time."""
        needs = {name: self.spent[name] + self.last.get(name, 0.0) for name in self._open}
        left = self.share * self.run_seconds - self.shared - self.in_vain
        found = {name for name in self._open if name not in self.last}
        for number, name in enumerate(sorted(needs, key=needs.__getitem__)):
            if name not in found and needs[name] > left / (len(needs) - number):
                break  # all that follow need more
            found.add(name)
            left -= needs[name]
        return [name for name in self._open if name in found]

    def close(self, name: str) -> None:
        """Give the part of a quantity that is measured no more to the others."""
        self._open.remove(name)

    def write_off(self, name: str, seconds: float) -> None:
        """Take seconds that a quantity took in vain from its account; they stay spent."""
        self.spent[name] -= seconds
        self.in_vain += seconds

    def take_up(self, shared: float, looks: Iterable[Mapping[str, float]]) -> None:
        """Go on with the seconds that earlier looks took."""
        self.shared = shared
        for costs in looks:
            for name in self.spent.keys() & costs.keys():
                self._charge(name, costs[name])

    def divide(self, seconds: float, names: Sequence[str], again: bool = True) -> None:
        """Move seconds from what all share to some quantities in equal parts; `again`: as they will next time."""
        self.shared -= seconds
        for name in names:
            self.spent[name] += seconds / len(names)
            if again:
                self.last[name] += seconds / len(names)

    @contextmanager
    def charged(self, name: str | None, device: torch.device) -> Iterator[None]:
        """Charge the time of a block to `name`, or to what all share, without what is charged inside the block.

        A GPU is waited for on both ends: what it still had to do before is the run's.
        """
        _wait_for(device)
        start, before = self._clock(), self.own_seconds
        try:
            yield
            _wait_for(device)
        finally:
            self._charge(name, self._clock() - start - (self.own_seconds - before))

    def _charge(self, name: str | None, seconds: float) -> None:
        if name is None:
            self.shared += seconds
        else:
            self.spent[name] += seconds
            self.last[name] = seconds


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
