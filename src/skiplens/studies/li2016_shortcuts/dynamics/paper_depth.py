"""The claims about training are about networks with 16 matrices: shallower ones behave differently."""

from collections.abc import Callable, Sequence
from functools import wraps

from skiplens.readings import Measurement
from skiplens.studies.claim import Judgement
from skiplens.studies.selection import values

DEPTH = 16
Judge = Callable[[Sequence[Measurement]], Judgement]


def at_paper_depth(judge: Judge) -> Judge:
    """The judge, who does not judge networks of another depth than the paper's."""

    @wraps(judge)
    def judged(readings: Sequence[Measurement]) -> Judgement:
        depths = values(readings, "depth")
        if depths == [DEPTH]:
            return judge(readings)
        explanation = f"The claim is about networks with {DEPTH} matrices; these have {depths[0]}. Use a larger preset."
        return Judgement("not attempted", explanation=explanation)

    return judged
