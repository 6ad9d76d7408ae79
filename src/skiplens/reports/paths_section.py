"""The path spectrum told in words."""

from collections.abc import Mapping
from typing import Any

from skiplens.figures import figures_of
from skiplens.readings import PathSpectrum
from skiplens.reports.section import Section, provenance_of

LAWS = {
    "squared_binomial": "branches add up in phase, as those with a positive mean do (the paper's law)",
    "binomial": "branches are independent of each other, as zero-mean branches without normalisation are",
    "stirling": "each branch is normalised to one scale, so that later blocks count for less",
    "batch_norm_mean_field": "ReLU branches, each centred and normalised to one scale",
    "rectified_mean_field": "x + ReLU(Wx) without normalisation",
}
"""What each law means."""

_NAMES = {"signal": "signal", "jacobian": "derivative along a random direction", "gradient": "gradient"}


def paths_section(reading: PathSpectrum) -> Section:
    """How deep the network is."""
    return Section(
        anchor=reading.kind,
        title="Path spectrum",
        sentence=paths_sentence(reading),
        facts=_facts(reading),
        rows=_rows(reading),
        notes=reading.notes,
        figures=figures_of(reading),
        provenance=provenance_of(reading),
    )


def paths_sentence(reading: PathSpectrum) -> str:
    """The spectrum in one sentence."""
    if not reading.blocks:
        return "There is one path only, without branches: the network has no residual join."
    what, mean = _NAMES[reading.of], reading.mean_depth
    deep = f"The energy of the {what} passes {mean:.1f} of {reading.blocks} branches on average"
    if not reading.law:
        return f"{deep}."
    law = reading.law.replace("_", " ")
    return f"{deep}; its spectrum is nearest to the {law} law with β = {reading.depth_ratio:.3g}."


def _facts(reading: PathSpectrum) -> tuple[tuple[str, str], ...]:
    facts = [
        ("decomposed", _NAMES[reading.of]),
        ("residual blocks", str(reading.blocks)),
        ("samples", str(len(reading.sample_energy))),
        ("mean depth", f"{reading.mean_depth:.3f} branches"),
        ("spread over paths", f"{reading.depth_variance**0.5:.3f} branches"),
        ("spread over samples", f"{reading.depth_spread:.3f} branches"),
        ("peak depth", f"{reading.peak_depth} branches"),
        ("coherent depth", f"{reading.coherent_depth:.3f} branches"),
    ]
    if len(reading.incoherent):
        facts.append(("incoherent depth (random signs)", f"{reading.incoherent_depth:.3f} branches"))
    if reading.gradient_energy.numel():
        error = f" ± {reading.gradient_depth_error:.2g}" if len(reading.gradient_energy) > 1 else ""
        facts.append(("mean depth of the gradient", f"{reading.gradient_depth:.3f}{error} branches"))
        facts.append(("peak depth of the gradient", f"{int(reading.gradient_distribution.argmax())} branches"))
    if reading.law:
        facts.append(("nearest law", f"{reading.law.replace('_', ' ')}: {LAWS[reading.law]}"))
        facts.append(("depth ratio β", f"{reading.depth_ratio:.3g}"))
        facts.append(("distance from that law (total variation)", f"{reading.law_distance:.3f}"))
    return tuple(facts)


def _rows(reading: PathSpectrum) -> tuple[Mapping[str, Any], ...]:
    """One row a block, where blocks were told apart."""
    return tuple(
        {"block": name, "energy": f"{energy / reading.total_energy:.3g}", "along the output": f"{share:.3g}"}
        for name, energy, share in zip(
            reading.block_names, reading.block_energy.tolist(), reading.block_shares.tolist(), strict=False
        )
    )
