"""What the Jacobians view says about its numbers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from skiplens.explorer.views.jacobians.block import RandomBlocks
from skiplens.explorer.views.jacobians.layer import NAMES, RandomLayer, log_typical
from skiplens.explorer.views.jacobians.layer_figures import through
from skiplens.theory.hypotheses import Case, CheckedHypothesis


def about_layer(layer: RandomLayer) -> str:
    """What the skip does to a typical direction, once and after all layers."""
    without, with_skip = (math.exp(log_typical(layer.scale, skip)) for skip in NAMES)
    start = f"Alone, a layer with weights of scale {layer.scale:g} multiplies a typical direction by {without:.2g}"
    deep = f"after {layer.depth} layers {through(layer.scale, False, layer.depth):.2g} is left of it"
    if layer.scale < 1:
        low = layer.law(True).support[0]
        return (
            f"{start}, and {deep}. With a skip the factor is 1 at any depth, and no direction is multiplied by less "
            f"than {low:.2g} in one layer."
        )
    return (
        f"{start}, and {deep}. Weights of a scale of 1 or more are too large for a skip to help: its typical factor is "
        f"{with_skip:.2g} and the smallest singular values of I + W reach zero."
    )


def layer_facts(layer: RandomLayer) -> tuple[tuple[str, str], ...]:
    """Smallest and typical values, and what is left after all layers."""
    smallest = {skip: float(values[-1]) for skip, values in layer.singular_values.items()}
    left = {skip: through(layer.scale, skip, layer.depth) for skip in NAMES}
    return tuple(
        fact
        for skip, name in NAMES.items()
        for fact in (
            (f"smallest singular value of {name}", f"{smallest[skip]:.3g}"),
            (f"typical factor of {name}", f"{math.exp(log_typical(layer.scale, skip)):.3g}"),
            (f"{name} after {layer.depth} layers", f"{left[skip]:.3g}"),
        )
    )


def layer_rows(layer: RandomLayer) -> tuple[dict[str, str | float], ...]:
    """What was drawn beside the limit of infinite width."""
    return tuple(row for skip, name in NAMES.items() for row in (_drawn(layer, skip, name), _limit(layer, skip, name)))


def about_blocks(blocks: RandomBlocks) -> str:
    """The medians of the blocks that shrink, and what the identity saves."""
    medians = [f"{name} {_median(jacobian):.2g}" for name, jacobian in blocks.shrinking().items()]
    chain, residual = (_smallest(jacobian) for jacobian in blocks.keeping_width().values())
    return (
        f"Where the width shrinks, the median singular value is: {', '.join(medians)}. Where it is kept, the smallest "
        f"is {chain:.2g} in the chain (ReLU switches half of the hidden units off) and {residual:.2g} with an identity "
        "skip."
    )


def block_facts(blocks: RandomBlocks) -> tuple[tuple[str, str], ...]:
    """The smallest singular value of each block that shrinks."""
    return tuple((f"smallest, {name}", f"{_smallest(jacobian):.3g}") for name, jacobian in blocks.shrinking().items())


def about_theorem(checks: Sequence[CheckedHypothesis], follows: str) -> str:
    """How many hypotheses hold, and what is certain if nothing that matters fails."""
    holding = sum(one.holds for one in checks)
    count = "All" if holding == len(checks) else f"{holding} of"
    return f"{count} {len(checks)} hypotheses hold. {_certain(checks, follows)}"


def theorem_facts(case: Case, checks: Sequence[CheckedHypothesis]) -> tuple[tuple[str, str], ...]:
    """Counts, and the two numbers that a guarantee is made of."""
    beta, margin = case.smoothness, next(one for one in checks if one.label == "G4")
    certified = beta is not None and math.isfinite(beta)
    return (
        ("hypotheses that hold", f"{sum(one.holds for one in checks)} of {len(checks)}"),
        ("margin of the branches", f"{margin.number:.3g}" if margin.holds else "none"),
        ("certified smoothness β", f"{beta:.3g}" if certified else "none"),
        ("largest certified step", f"{2 / beta:.3g}" if certified and beta else "none"),
    )


def _certain(checks: Sequence[CheckedHypothesis], follows: str) -> str:
    if not follows.startswith("All hypotheses"):
        return follows
    # The library's sentence is for reports: it tells all conditions, which stand in the small print here.
    sure = "The loss has no bad valleys: every critical point is a global minimum"
    step = next(one for one in checks if one.label == "G6")
    if not step.holds:
        return f"{sure}. But the step is too large to be sure that the loss falls."
    return (
        f"{sure}, and the loss falls at every step. That it arrives there is not proved: the printed theorem is false."
    )


def _drawn(layer: RandomLayer, skip: bool, name: str) -> dict[str, str | float]:
    values = layer.singular_values[skip]
    typical = values.log().mean().exp().item()
    return _row(name, f"width {layer.width}", (values[-1].item(), values.mean().item(), typical, values[0].item()))


def _limit(layer: RandomLayer, skip: bool, name: str) -> dict[str, str | float]:
    law = layer.law(skip)
    (low, high), mean = law.support, law.mean_of(lambda sigma: sigma)
    return _row(name, "infinite width", (low, mean, math.exp(log_typical(layer.scale, skip)), high))


def _row(name: str, width: str, numbers: tuple[float, ...]) -> dict[str, str | float]:
    columns = ("smallest", "mean", "geometric mean", "largest")
    return {"matrix": name, "at": width, **dict(zip(columns, numbers, strict=True))}


def _median(jacobian: Tensor) -> float:
    return _without_rounding(torch.linalg.svdvals(jacobian)).median().item()


def _smallest(jacobian: Tensor) -> float:
    return _without_rounding(torch.linalg.svdvals(jacobian))[-1].item()


def _without_rounding(values: Tensor) -> Tensor:
    """The values, with 0 where there is nothing but rounding."""
    return values * (values > len(values) * torch.finfo(values.dtype).eps * values[0])
