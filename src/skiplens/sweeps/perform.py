"""Do one run, here and now: what every worker calls, whatever machine it is on."""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from skiplens.core.errors import ClusterError, InvalidInputError
from skiplens.core.memory import free_bytes, require_fits
from skiplens.core.named import named_function
from skiplens.core.precision import full_precision
from skiplens.core.version import VERSION
from skiplens.readings import Measurement, Provenance, Reading
from skiplens.sweeps.run import Failure, Outcome, Run
from skiplens.sweeps.unfinished import keeping


def perform(run: Run, version: str = VERSION) -> Outcome:
    """The outcome of `run`; an error of the measure is an outcome too.

    Args:
        run: What to do.
        version: The Skiplens that asked; another one here is refused, since its numbers could differ.
    """
    require_version(version)
    try:
        return Outcome(run, reading=_measured(run))
    except Exception as error:
        return Outcome(run, failure=Failure(f"{type(error).__name__}: {error}", traceback.format_exc()))


def require_version(asking: str) -> None:
    """Refuse to work for another version of Skiplens."""
    if asking != VERSION:
        raise ClusterError(
            f"A worker has Skiplens {VERSION}, the command has {asking}: their numbers could differ. "
            "Install the same version on all workers and start them again."
        )


def _measured(run: Run) -> Reading:
    require_fits(run.needs.memory, f"{run}", "Use a smaller preset or a larger machine.", free_bytes())
    stopwatch = Provenance.begin(run.settings.to_json(), getattr(run.settings, "seed", None), _device(run))
    with threads(run.needs.threads), full_precision(), keeping(run.unfinished):
        found = named_function(run.measure)(run.settings)
    if isinstance(found, Reading):
        return found
    return Measurement(name=run.measure, arrays=_tensors(found, run), provenance=stopwatch.end())


def _tensors(found: Any, run: Run) -> Mapping[str, torch.Tensor]:
    if isinstance(found, Mapping) and all(isinstance(value, torch.Tensor) for value in found.values()):
        return found
    raise InvalidInputError(
        f"{run.measure} returned a {type(found).__name__}; a measure returns a reading, or tensors by name."
    )


def _device(run: Run) -> str:
    return "cuda" if run.needs.gpus else "cpu"


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with `count` threads, then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
