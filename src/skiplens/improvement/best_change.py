"""The one change to begin with: what the worst finding asks for, and what a short training with it promises."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from skiplens.base import Progress, SkiplensError, silent
from skiplens.base.preserve_state import without_autocast
from skiplens.base.words import in_words
from skiplens.edits.remedies import MODES, words_of
from skiplens.graph.inputs import first_line
from skiplens.graph.lens import Subject
from skiplens.improvement.changes import changes_for
from skiplens.improvement.patient import Patient, has_numbers
from skiplens.improvement.plan import Change, changed
from skiplens.improvement.search import WORTH
from skiplens.plots.section import ReadingView
from skiplens.readings import Finding, Reading
from skiplens.trainability import Forecast, forecast
from skiplens.trainability.optimizers import optimizer_choice

TRIES = 3  # changes that are tried before none is said to help


class BestChange(Reading, kind="best_change"):
    """The change to begin with, and what it promises."""

    rule: str  # the finding that asks for it, or the name of the change where none does
    change: str  # what to do, as a sentence
    code: str  # it as code to paste
    gradients: int  # gradients of the pilot in which it was tried; 0 where it was not
    before: float  # the expected loss of the network as it is; infinite where it diverges
    after: float  # that of the changed one; the same as before where it was not tried
    fall: float  # by how much the logarithm of the loss at the end of a pilot falls
    steps: int  # length of the training that is forecast
    reason: str = ""  # why it was not tried; '' where it was
    others: tuple[str, ...] = ()  # what else was tried and promised no clearly lower loss

    @property
    def helps(self) -> bool:
        """Whether the pilot promises a loss that is clearly lower."""
        return self.gradients > 0 and self.fall > WORTH

    @property
    def beside(self) -> str:
        """What else was tried, in vain."""
        return f"Tried as well, without a clearly lower loss: {'; '.join(self.others)}." if self.others else ""

    @property
    def promise(self) -> str:
        """What is expected of it."""
        if not self.gradients:
            return f"What it brings is not known: {self.reason}."
        tried = f"tried in a pilot of {self.gradients} steps"
        both = self.before, self.after
        was, became = (in_words(loss, 2) if math.isfinite(loss) else "one that diverges" for loss in both)
        if self.helps:
            return f"Expected after {self.steps} steps: a loss of {became} instead of {was} ({tried})."
        if not math.isfinite(self.after):
            return f"Alone it does not help: the loss it leads to diverges ({tried})."
        return f"Alone it promises no clearly lower loss: {became} instead of {was} ({tried})."


def best_change(
    subject: Subject, findings: Sequence[Finding], before: Forecast, *, tried: bool = True, progress: Progress = silent
) -> BestChange | None:
    """The change to begin with; None where nothing calls for one, none makes it, or NaN must first be found.

    The worst finding above a note that a function can mend names it. A forecast more, as costly as the one `before`,
    says what it promises. Where there is none, or it promises nothing, and the forecast is bad, the first changes that
    `improve` would try are tried in turn until one helps, at most three in all; `tried=False` tries none. The worst of
    the `findings` is first.
    """
    if not has_numbers(subject.model, subject.batch):
        return None
    seen: list[BestChange] = []
    for change in islice(_candidates(subject, findings, before), TRIES if tried else 1):
        known = _tried(change, subject, before, progress) if tried else {"reason": "it was not tried"}
        found = BestChange(
            rule=change.name,
            change=f"{change.words[:1].upper()}{change.words[1:]}.",
            code=change.code,
            before=before.loss,
            steps=before.steps,
            provenance=before.provenance,
            **{"gradients": 0, "after": before.loss, "fall": 0.0, **known},
        )
        if found.helps:
            return replace(found, others=_words_of(seen))
        seen.append(found)
    return replace(seen[0], others=_words_of(seen[1:])) if seen else None


def _candidates(subject: Subject, findings: Sequence[Finding], before: Forecast) -> Iterator[Change]:
    """What the worst finding above a note asks for that a function can do; then what improve begins with."""
    wanted = ((f, f.remedy) for f in findings if f.severity != "note" and f.remedy is not None)
    mending = (Change(f.rule, "start", words_of(r), f.sentence, (r,)) for f, r in wanted if r.name not in MODES)
    first = next(mending, None)
    if first is not None:
        yield first
    if before.is_bad:
        patient = Patient(subject.model, subject.batch, subject.loss, before.steps, optimizer_choice(before.optimizer))
        known = () if first is None else first.remedies
        yield from (change for change in changes_for(patient, None)[0] if change.remedies not in ((), known))


def _tried(change: Change, subject: Subject, before: Forecast, progress: Progress) -> dict[str, Any]:
    """What a forecast of the changed network says; why there is none where it cannot be made."""
    cost = before.provenance.settings.get("cost", before.cost)  # the same, so that the two can be compared
    choice = optimizer_choice(before.optimizer)
    asked = {"loss": subject.loss, "optimizer": choice, "steps": before.steps, "cost": cost}
    data = subject.batch if subject.data is None else subject.data
    # not what the forecast says on its way: it would be read as said of the network that was handed in
    asked["progress"] = lambda label, *counts: progress("what to change first", *counts)
    try:
        with without_autocast():
            model = changed(subject.model, (change,), subject.batch.inputs)
        after = forecast(model, data, seed=before.provenance.seed or 0, **asked)
    except SkiplensError as error:
        return {"reason": f"it cannot be tried here ({first_line(error).rstrip('.')})"}
    return {"gradients": after.cost, "after": after.loss, "fall": before.score - after.score}


def _words_of(tried: Sequence[BestChange]) -> tuple[str, ...]:
    return tuple(one.change[:1].lower() + one.change[1:].rstrip(".") for one in tried if one.gradients)


VIEW = ReadingView(BestChange)  # it stands under the verdict, so it has no section of its own
