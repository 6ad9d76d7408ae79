"""What is drawn for each topic of the view: a layer, a block, the theorem."""

from typing import Any

from skiplens.explorer.drawing import Check, Drawing
from skiplens.explorer.view import Values
from skiplens.explorer.views.jacobians import code, words
from skiplens.explorer.views.jacobians.block import RandomBlocks
from skiplens.explorer.views.jacobians.block_figures import mnist_block, shrinking_blocks, width_keeping_blocks
from skiplens.explorer.views.jacobians.layer import RandomLayer
from skiplens.explorer.views.jacobians.layer_figures import (
    range_against_scale,
    singular_value_densities,
    typical_against_depth,
)
from skiplens.explorer.views.jacobians.mnist_blocks import MeasuredBlocks
from skiplens.explorer.views.jacobians.theorem import TheoremOptions, case_of
from skiplens.explorer.views.jacobians.theorem_figures import certified_slope, certified_step, verdicts_by_theorem
from skiplens.theory.hypotheses import CheckedHypothesis, check, what_follows

PAPER = (
    "MacDonald, Valmadre, Saratchandran and Lucey 2023, On skip connections and normalisation layers in deep "
    "optimisation, as corrected."
)


def draw_layer(values: Values) -> Drawing:
    """Singular values of a random layer with and without a skip."""
    layer = RandomLayer(float(values["scale"]), values["width"], values["depth"], values["seed"])
    return Drawing(
        figures=(singular_value_densities(layer), range_against_scale(layer), typical_against_depth(layer)),
        says=words.about_layer(layer),
        facts=words.layer_facts(layer),
        rows=words.layer_rows(layer),
        code=code.layer_code(layer),
        notes=(f"The limit of infinite width of figure 1 of {PAPER}",),
    )


def draw_block(values: Values, measured: Any) -> Drawing:
    """Singular values of blocks with different shortcuts."""
    blocks = RandomBlocks(float(values["scale"]), values["width"], values["seed"])
    real = (mnist_block(measured),) if isinstance(measured, MeasuredBlocks) else ()
    return Drawing(
        figures=(shrinking_blocks(blocks), width_keeping_blocks(blocks), *real),
        says=words.about_blocks(blocks),
        facts=words.block_facts(blocks),
        code=code.block_code(blocks, bool(values["mnist"])),
        notes=(f"Random matrices in the place of the convolutions of {PAPER}",),
    )


def draw_theorem(values: Values) -> Drawing:
    """The hypotheses of the convergence theorem, one by one."""
    options = TheoremOptions.of(values)
    case = case_of(options)
    checks, follows = check(case), what_follows(case)
    says = words.about_theorem(checks, follows)
    figures = (verdicts_by_theorem(checks), certified_slope(options), certified_step(options))
    return Drawing(
        figures=tuple(figure for figure in figures if figure is not None),
        says=says,
        facts=words.theorem_facts(case, checks),
        checks=tuple(_check(one) for one in checks),
        code=code.theorem_code(options),
        notes=(
            f"Theorems 4.5, 4.7 and 5.1 of {PAPER}",
            "Hardly any network in use meets all hypotheses; one that fails is no fault, only no guarantee.",
            *((follows,) if follows not in says else ()),
            "The first loss is taken to be that of outputs that are all zero, as with zero weights.",
        ),
    )


def _check(one: CheckedHypothesis) -> Check:
    state = "unknown" if one.verdict == "cannot be decided" else one.verdict
    # the formula en(W) X is a reason too, and no sentence
    reason = f"it is {one.reason}" if one.reason.startswith("en(") else one.reason
    why = f"{reason[:1].upper()}{reason[1:]}".removesuffix(".")
    return Check(state, f"{one.label}: {one.hypothesis.statement}", f"{why}. {one.change}".strip())
