"""The tangent kernel told in words."""

import math

from skiplens.figures import figures_of
from skiplens.readings import TangentReading
from skiplens.reports.section import Section, number_in_words, provenance_of


def tangent_section(reading: TangentReading) -> Section:
    """What the tangent kernel says about learning."""
    alignment = reading.alignment
    diagonal = reading.kernel.diagonal()
    facts: tuple[tuple[str, str], ...] = (
        ("samples", str(len(reading.kernel))),
        ("parameters differentiated", f"{reading.parameters:,}"),
        ("condition number", number_in_words(reading.condition_number)),
        ("effective rank", f"{reading.effective_rank:.1f} of {len(reading.kernel)}"),
        ("largest eigenvalue", number_in_words(float(reading.eigenvalues[0]))),
        ("mean of the diagonal", number_in_words(float(diagonal.mean())) + _error_of_mean(reading)),
        ("spread of the diagonal", f"{float(diagonal.std() / diagonal.mean()):.0%} of its mean"),
        ("alignment with the classes", "no pairs to compare" if alignment is None else f"{alignment:.3f}"),
    )
    facts = (*facts, *_seed_facts(reading), *_limit_facts(reading))
    notes = (*reading.notes, *_coupling_note(reading))
    return Section(
        anchor=reading.kind,
        title="Tangent kernel",
        sentence=tangent_sentence(reading),
        facts=facts,
        notes=notes,
        figures=figures_of(reading),
        provenance=provenance_of(reading),
    )


def _error_of_mean(reading: TangentReading) -> str:
    """The standard error where the kernel was estimated from some outputs."""
    if not reading.sampled_outputs:
        return ""
    return f" ± {float(reading.kernel_error.diagonal().mean()):.1g}"


def _coupling_note(reading: TangentReading) -> tuple[str, ...]:
    return ("Batch norm is in training mode: the kernel is that of this batch as a whole.",) * reading.batch_coupled


def _seed_facts(reading: TangentReading) -> tuple[tuple[str, str], ...]:
    """How much the kernel varies from seed to seed, and what theory expects."""
    variance, error = reading.seed_variance
    if math.isnan(variance):
        return ()
    expected = "" if math.isnan(reading.predicted_variance) else f"; theory expects {reading.predicted_variance:.2g}"
    name = f"relative variance over {len(reading.seed_diagonals)} seeds (branches, one output)"
    return ((name, f"{variance:.2g} ± {error:.1g}{expected}"),)


def _limit_facts(reading: TangentReading) -> tuple[tuple[str, str], ...]:
    """How far the kernel is from that of the infinitely wide network."""
    if math.isnan(reading.limit_distance):
        return ()
    return (("distance from the infinite-width kernel (correlations)", f"{reading.limit_distance:.3f}"),)


def tangent_sentence(reading: TangentReading) -> str:
    """The kernel in one sentence."""
    rank = f"its {len(reading.kernel)} samples share {reading.effective_rank:.1f} directions"
    if math.isinf(reading.condition_number):
        return f"The tangent kernel is singular to working precision: {rank}, and some outputs cannot be learned apart."
    return (
        f"The tangent kernel has condition number {number_in_words(reading.condition_number)}; {rank}: gradient "
        "descent learns the slowest direction that many times more slowly than the fastest."
    )
