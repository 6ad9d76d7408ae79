"""What makes the other numbers doubtful: values that are not finite, dropout, chance, statistics never learned."""

from collections.abc import Iterator

import torch

from skiplens.findings.finding import Finding, Remedy, listed
from skiplens.findings.remedies import code_of
from skiplens.findings.rule import Rule
from skiplens.readings import SignalReading


def judge_values(reading: SignalReading) -> Iterator[Finding]:
    """Values that are not finite."""
    if reading.broken:
        yield Finding(
            rule="not_finite",
            severity="critical",
            sentence=f"Values are NaN or infinite: {listed(reading.broken)}. No measurement can be trusted.",
            number=float(len(reading.broken)),
            threshold=0.0,
            source="every theorem speaks of finite values",
            change="Go back to the last checkpoint with finite weights, check the inputs, and lower the learning rate "
            "or clip the gradient.",
            where=reading.broken,
        )


def judge_dropout(reading: SignalReading) -> Iterator[Finding]:
    """Dropout that is switched on while the network is looked at."""
    if reading.dropout:
        remedy = Remedy("evaluation_mode")
        yield Finding(
            rule="dropout_on",
            severity="warning",
            sentence=f"Dropout is switched on in {len(reading.dropout)} "
            f"place{'s' * (len(reading.dropout) > 1)} ({listed(reading.dropout)}): what was measured is one random "
            "thinning of the network.",
            number=float(len(reading.dropout)),
            threshold=0.0,
            source="a measurement must be the same when it is repeated",
            change="Look at the network in evaluation mode.",
            code=code_of(remedy),
            where=reading.dropout,
            remedy=remedy,
        )


def judge_repeatability(reading: SignalReading) -> Iterator[Finding]:
    """Two calls that disagree although no dropout is on."""
    rounding = torch.finfo(getattr(torch, reading.precision)).eps ** 0.5
    if reading.repeat_difference > rounding and not reading.dropout:
        yield Finding(
            rule="not_repeatable",
            severity="warning",
            sentence=f"Two calls with the same inputs differ by {reading.repeat_difference:.2g} of the largest output: "
            "the network draws at random, or changes when it is called.",
            number=reading.repeat_difference,
            threshold=rounding,
            source="half of the digits of the dtype; sums in another order differ by less",
            change="Switch off stochastic depth, random augmentation and state that a forward pass updates "
            "(model.eval()), or hand in a model without them.",
            code="model.eval()",
            remedy=Remedy("evaluation_mode"),
        )


def judge_statistics(reading: SignalReading) -> Iterator[Finding]:
    """Batch norms that do not normalise, because no batch has updated their statistics."""
    if reading.fresh_norms:
        remedy = Remedy("training_mode", {"modules": reading.fresh_norms})
        yield Finding(
            rule="fresh_statistics",
            severity="note",
            sentence=f"{len(reading.fresh_norms)} batch norm{'s are' if len(reading.fresh_norms) > 1 else ' is'} in "
            "evaluation mode with statistics that no batch has updated: nothing is normalised in what was measured.",
            number=float(len(reading.fresh_norms)),
            threshold=0.0,
            source="running mean 0 and variance 1 make batch norm the identity",
            change="Look at an untrained network in training mode, or let some batches pass first.",
            code=code_of(remedy),
            where=reading.fresh_norms,
            remedy=remedy,
        )


RULES = (
    Rule("not_finite", (SignalReading,), judge_values),
    Rule("dropout_on", (SignalReading,), judge_dropout),
    Rule("not_repeatable", (SignalReading,), judge_repeatability),
    Rule("fresh_statistics", (SignalReading,), judge_statistics),
)
