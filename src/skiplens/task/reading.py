"""What the task lens saw: the inputs, the targets, and the loss before the first step."""

import math
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from skiplens.base.axes import Int
from skiplens.readings.reading import Reading


class TaskReading(Reading, kind="task"):
    """What is asked of a network, and how it starts; numbers that do not apply are NaN.

    Attributes:
        samples: How many samples the network was called with.
        seen: How many were looked at without the network.
        loss_name: What the loss is called.
        form: What the loss takes: ``classes`` (scores for cross-entropy), ``log_probabilities``, ``binary`` (scores
            with a sigmoid in the loss), ``numbers`` (mean square) or ``own``, of which nothing is known.
        loss: At the start.
        no_answer: The loss of outputs zero: equal scores for all classes, or the mean square of the targets.
        guess: The loss of the best constant answer: the entropy of the labels, or the variance of the targets.
        answers: What the outputs are: ``scores``, ``probabilities``, ``log_probabilities`` or ``sigmoids``.
        output_size: Root mean square of the outputs (around the mean of each sample's scores, for classes).
        head: Parameters that the outputs are proportional to; empty where that is not known.
        classes: How many classes the outputs have; 0 where targets are no classes.
        counts: How many of the samples seen have each class; empty where a sample has more than one target.
        low, high, mean, std: Of the largest floating input; NaN where all inputs are tokens.
        constant: Share of its features that are the same in all samples.
        entry_size: Root mean square of what reaches the first weight matrix.
        entry_common: Share of the power of this that all samples have in common: ‖E x‖² / E ‖x‖².
        change: How much the outputs change, relative to their spread, when the inputs are brought to size one, and to
            mean zero where they have much in common; NaN where their size and mean are usual.
        copies: How many samples seen have the same inputs as an earlier one.
        contradictions: How many share their inputs with a sample that has another target.
        floor: The loss that no function of the inputs goes below for these, in units of a guess on the samples seen.
        neighbours: By how many standard deviations of chance neighbouring inputs have more similar targets than others;
            NaN with fewer than 256 samples.
        dropouts: Modules that drop most of their values in training: four fifths or more.
        dropped: The largest share that any module drops.
        mixes: Whether the answer to a sample depends on the others in its batch, batch norms and dropout aside.
    """

    may_lack: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("low", "high", "mean", "std", "constant", "entry_size"), "no input is real and finite"),
        "no_answer": "nothing is known of the loss",
        "guess": "no search finds the best constant answer to this loss",
        "entry_common": "the inputs have no axis of samples, or there are few samples",
        "change": "the size and the mean of the inputs are usual",
        "floor": "targets are no single classes or numbers",
        "neighbours": "there are fewer than 256 samples of real inputs with single targets",
    }

    samples: int
    seen: int
    loss_name: str
    form: str
    loss: float
    no_answer: float
    guess: float
    answers: str
    output_size: float
    head: tuple[str, ...]
    classes: int
    counts: Int[Tensor, " classes"]
    low: float = math.nan
    high: float = math.nan
    mean: float = math.nan
    std: float = math.nan
    constant: float = math.nan
    entry_size: float = math.nan
    entry_common: float = math.nan
    change: float = math.nan
    copies: int = 0
    contradictions: int = 0
    floor: float = math.nan
    neighbours: float = math.nan
    dropouts: tuple[str, ...] = ()
    dropped: float = 0.0
    mixes: bool = False

    @property
    def start(self) -> float:
        """The loss at the start in units of that of no answer."""
        return self.loss / self.no_answer if self.no_answer > 0 else math.nan
