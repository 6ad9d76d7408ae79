"""Projection shortcuts that could be identity plus projection, and blocks whose Jacobian loses directions."""

from collections.abc import Iterator

from skiplens.findings.finding import Finding, Remedy, Severity, listed
from skiplens.findings.remedies import code_of
from skiplens.findings.rule import Rule
from skiplens.readings import JacobianSpectrum, StructureReading
from skiplens.readings.jacobians import FLOOR

LOST = 0.01
"""Share of lost directions that is worth telling."""


def judge_projections(reading: StructureReading) -> Iterator[Finding]:
    """Shortcuts that multiply by a drawn matrix, whose singular values are not 1."""
    names = _projections(reading)
    if not names:
        return
    remedy = Remedy("add_average_pool_skips", {"blocks": names})
    one = len(names) == 1
    yield Finding(
        rule="projection_shortcuts",
        severity="note",
        sentence=f"{len(names)} shortcut{' is a projection' if one else 's are projections'} (block {listed(names)}): "
        "some directions of the signal are shrunk there before training has begun.",
        number=float(len(names)),
        threshold=0.0,
        source="'On skip connections and normalisation layers in deep optimisation', theorem 4.7 asks for shortcuts "
        "with all singular values 1; section 6.3 adds an average pool to each projection",
        change="Add a scaled average pool beside each projection: identity plus projection, the same parameters.",
        code=code_of(remedy),
        where=names,
        remedy=remedy,
    )


def judge_directions(jacobians: JacobianSpectrum, structure: StructureReading) -> Iterator[Finding]:
    """Blocks through which some directions of the signal do not pass at all.

    A shortcut that reduces the signal and widens its channels must lose some of them; an identity loses none, unless
    its branch takes them away.
    """
    shares = {name: jacobians.statistics(name).near_zero for name in jacobians.blocks}
    losing = tuple(name for name, share in shares.items() if share > LOST)
    if not losing:
        return
    worst = max(losing, key=shares.__getitem__)
    pooled = tuple(name for name in losing if name in _projections(structure))
    remedy = Remedy("add_average_pool_skips", {"blocks": pooled}) if pooled else None
    bare = {name for name, kind in zip(structure.block_names, structure.shortcuts, strict=True) if kind == "identity"}
    severity: Severity = "note" if bare.isdisjoint(losing) else "warning"
    yield Finding(
        rule="lost_directions",
        severity=severity,
        sentence=f"Block {worst} loses {shares[worst]:.0%} of the directions of its signal (singular values below "
        f"{FLOOR:g}){_others(losing, worst)}.",
        number=shares[worst],
        threshold=LOST,
        source="'On skip connections and normalisation layers in deep optimisation', proposition 4.6 and lemma B.4: "
        "with an isometric shortcut and a branch of norm below 1 no singular value of a block is 0",
        change="Let the shortcut pass every direction: an identity, or a pool beside the projection; and keep "
        "activations and normalisations off the shortcut.",
        code=code_of(remedy) if remedy else "",
        where=losing,
        remedy=remedy,
    )


def _projections(reading: StructureReading) -> tuple[str, ...]:
    return tuple(
        name for name, kind in zip(reading.block_names, reading.shortcuts, strict=True) if kind == "projection"
    )


def _others(losing: tuple[str, ...], worst: str) -> str:
    others = tuple(name for name in losing if name != worst)
    return f"; so do {listed(others)}" if others else ""


RULES = (
    Rule("projection_shortcuts", (StructureReading,), judge_projections),
    Rule("lost_directions", (JacobianSpectrum, StructureReading), judge_directions),
)
