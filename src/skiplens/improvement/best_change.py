"""The one change to begin with: what the worst finding asks for, and what a short training with it promises."""

import math
from collections.abc import Sequence
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

    @property
    def helps(self) -> bool:
        """Whether the pilot promises a loss that is clearly lower."""
        return self.gradients > 0 and self.fall > WORTH

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

    The worst finding above a note that a function can mend names it. Where there is none and the forecast is bad, it
    is the first change that `improve` would try. One forecast more, as costly as the one `before`, says what it
    promises; `tried=False` leaves it out. The worst of the `findings` is first.
    """
    wanted = ((f, f.remedy) for f in findings if f.severity != "note" and f.remedy is not None)
    mending = (Change(f.rule, "start", words_of(r), f.sentence, (r,)) for f, r in wanted if r.name not in MODES)
    found = next(mending, None)  # what the worst finding above a note asks for that a function can do
    if (found is None and not before.is_bad) or not has_numbers(subject.model, subject.batch):
        return None
    choice = optimizer_choice(before.optimizer)
    patient = Patient(subject.model, subject.batch, subject.loss, before.steps, choice)
    change = found or next((change for change in changes_for(patient, None)[0] if change.remedies), None)
    if change is None:
        return None
    known: dict[str, Any] = {"gradients": 0, "after": before.loss, "fall": 0.0, "reason": "it was not tried"}
    if tried:
        cost = before.provenance.settings.get("cost", before.cost)  # the same, so that the two can be compared
        asked = {"loss": subject.loss, "optimizer": choice, "steps": before.steps, "cost": cost}
        data = subject.batch if subject.data is None else subject.data
        # not what the forecast says on its way: it would be read as said of the network that was handed in
        asked["progress"] = lambda label, *counts: progress("what to change first", *counts)
        try:
            with without_autocast():
                model = changed(subject.model, (change,), subject.batch.inputs)
            after = forecast(model, data, seed=before.provenance.seed or 0, **asked)
            known = {"gradients": after.cost, "after": after.loss, "fall": before.score - after.score}
        except SkiplensError as error:
            known["reason"] = f"it cannot be tried here ({first_line(error).rstrip('.')})"
    return BestChange(
        rule=change.name,
        change=f"{change.words[:1].upper()}{change.words[1:]}.",
        code=change.code,
        before=before.loss,
        steps=before.steps,
        provenance=before.provenance,
        **known,
    )


VIEW = ReadingView(BestChange)  # it stands under the verdict, so it has no section of its own
