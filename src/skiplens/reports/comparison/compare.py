"""Look at several models, each drawn several times, and test how they differ."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from skiplens.core.errors import InvalidInputError
from skiplens.core.fingerprint import fingerprint
from skiplens.core.progress import Progress, silent
from skiplens.data.batch import Batch, take
from skiplens.reports.comparison.comparison import Comparison
from skiplens.reports.comparison.contender import Contender
from skiplens.reports.comparison.effort import Effort, effort
from skiplens.reports.inspection import INTERRUPTED, inspect
from skiplens.reports.report import Report
from skiplens.residual.trial import require_module

Builder = Callable[[int], nn.Module]
"""From a seed to a model with weights of that seed."""

ONE_MODEL = (
    "It was handed over as a model, so it exists once: what a new draw of its weights would change is not known."
)
SAME_WEIGHTS = (
    "Its builder gives the same weights for every seed (a checkpoint, or a fixed seed inside), so it exists once: what "
    "a new draw of its weights would change is not known."
)


def compare(
    models: Mapping[str, nn.Module | Builder],
    data: Any,
    *,
    lenses: Sequence[str] = (),
    draws: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Comparison:
    """The models side by side, each tested against the first: do they differ by more than new weights of one do?

    An interruption from the keyboard leaves what was finished.

    Args:
        models: For each name a function from a seed to a model, which is drawn several times, or a model, which exists
            once.
        data: `(inputs, targets)` or an iterable of such batches; or a mapping from the names to those, for models that
            want different inputs.
        lenses: Names of lenses; by default all, but the costly ones for models of more than a million parameters.
        draws: How often each model is drawn; by default 5 times, 3 times for such large models.
        seed: The first of the seeds.
        progress: Called as the work goes on.
    """
    if len(models) < 2:
        raise InvalidInputError(f"A comparison needs at least 2 models, got {len(models)}: {', '.join(models)}.")
    first = {name: _first(model, seed) for name, model in models.items()}
    largest = max(sum(p.numel() for p in model.parameters()) for model in first.values())
    chosen = effort(largest, lenses, draws)
    batches = _batches(models, data, chosen.samples)
    work = _Work(models, first, batches, chosen, seed)
    try:
        work.run(progress)
    except KeyboardInterrupt:
        if len(work.contenders()) < 2:
            raise
    return Comparison(work.contenders(), chosen.notes)


class _Work:
    """Draw by draw, each with all models, so that an interruption leaves models that can be compared."""

    def __init__(
        self,
        models: Mapping[str, nn.Module | Builder],
        first: Mapping[str, nn.Module],
        batches: Mapping[str, Batch],
        chosen: Effort,
        seed: int,
    ) -> None:
        self.models, self.first, self.batches, self.chosen, self.seed = models, first, batches, chosen, seed
        self.notes = {name: ONE_MODEL if isinstance(model, nn.Module) else "" for name, model in models.items()}
        self.prints = {name: fingerprint(model.state_dict().items()) for name, model in first.items()}
        self.reports: dict[str, list[Report]] = {name: [] for name in models}

    def run(self, progress: Progress) -> None:
        """Look at all draws."""
        total = self.chosen.draws * len(self.models)
        progress("networks compared", 0, total)
        for done, (draw, name) in enumerate((d, n) for d in range(self.chosen.draws) for n in self.models):
            model = self._drawn(name, draw)
            if model is not None:
                self._look(name, model, draw, progress)
            progress("networks compared", done + 1, total)

    def _look(self, name: str, model: nn.Module, draw: int, progress: Progress) -> None:
        """Take a report; an interruption on the way is told by the report itself."""
        options: dict[str, Any] = {"lenses": self.chosen.lenses, "name": name, "seed": self.seed + draw}
        report = inspect(model, self.batches[name], progress=progress, **options)
        self.reports[name].append(report)
        if any(INTERRUPTED in problem.message for problem in report.problems):
            raise KeyboardInterrupt

    def _drawn(self, name: str, draw: int) -> nn.Module | None:
        """The draw of a model; None where it exists only once and was seen."""
        if draw == 0:
            return self.first[name]
        model = self.models[name]
        if self.notes[name] or isinstance(model, nn.Module):
            return None
        fresh = require_module(model(self.seed + draw))
        if fingerprint(fresh.state_dict().items()) == self.prints[name]:
            self.notes[name] = SAME_WEIGHTS
            return None
        return fresh

    def contenders(self) -> tuple[Contender, ...]:
        """What was finished."""
        return tuple(
            Contender(name, tuple(reports), self.notes[name]) for name, reports in self.reports.items() if reports
        )


def _first(model: nn.Module | Builder, seed: int) -> nn.Module:
    if isinstance(model, nn.Module) or not callable(model):
        return require_module(model)
    return require_module(model(seed))


def _batches(models: Mapping[str, Any], data: Any, samples: int) -> dict[str, Batch]:
    if not isinstance(data, Mapping):
        shared = take(data, samples)
        return dict.fromkeys(models, shared)
    missing = [name for name in models if name not in data]
    if missing:
        raise InvalidInputError(f"data has no entry for {', '.join(missing)}; wanted one for each model, by its name.")
    return {name: take(data[name], samples) for name in models}
