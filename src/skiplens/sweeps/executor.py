"""Where runs are done: the abstract executor, and the one that does them in this process."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator

import torch

from skiplens.sweeps.perform import perform
from skiplens.sweeps.run import Failure, Outcome, Run

Running = Callable[[int], None]
"""Called with the number of runs being done now."""


class Executor(ABC):
    """Does runs somewhere. It neither stores readings nor tries a failed run again: that is the sweep's matter."""

    @abstractmethod
    def outcomes(self, queue: deque[Run], running: Running) -> Iterator[Outcome]:
        """One outcome for each run that is taken from `queue`, as they come, until the queue is empty.

        Whoever takes the outcomes may put further runs into the queue meanwhile.
        """


class ThisProcess(Executor):
    """One run after the other, here."""

    def outcomes(self, queue: deque[Run], running: Running) -> Iterator[Outcome]:
        """One outcome for each run, in order."""
        gpus = torch.cuda.device_count()
        while queue:
            run = queue.popleft()
            running(1)
            outcome = perform(run) if run.needs.gpus <= gpus else out_of_reach(run, gpus)
            running(0)
            yield outcome


def out_of_reach(run: Run, gpus: int) -> Outcome:
    """The failure of a run that needs more GPUs than there are."""
    error = (
        f"The run needs {run.needs.gpus} GPU{'s' * (run.needs.gpus > 1)} and {gpus} can be used here. "
        "Use a machine or a cluster (--scheduler) that has them, or a smaller preset."
    )
    return Outcome(run, failure=Failure(error))
