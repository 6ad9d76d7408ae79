"""Cut a batch so that the stacks of coefficients fit in memory."""

from typing import Any

from torch import nn

from skiplens.core.errors import InvalidInputError
from skiplens.core.memory import budget_bytes, require_fits
from skiplens.core.untouched import untouched
from skiplens.derivatives.functional import is_batch_coupled, pure_model
from skiplens.derivatives.polynomial import tangent_plan
from skiplens.derivatives.polynomial.memory import all_bytes, peak_bytes
from skiplens.derivatives.samples import Samples, samples_of
from skiplens.lenses.paths.expanders import Chunk
from skiplens.lenses.paths.options import Of, PathOptions
from skiplens.residual import ResidualNetwork, dissect


def chunks_of(network: ResidualNetwork, inputs: Any, of: Of, options: PathOptions) -> list[Chunk]:
    """The batch in one piece, or in pieces that fit in memory if its samples do not depend on each other."""
    samples = samples_of(inputs)
    needed, budget = _needed(network, of, options), budget_bytes(_device(network.model), options.memory)
    if needed <= budget:
        return [Chunk(_fed(network, samples), slice(0, samples.count))]
    pieces = -(-needed // max(1, budget))
    alone = samples.count == 1 or _coupled(network.model, samples)
    require_fits(
        needed if alone else needed // samples.count,
        f"The path spectrum of {samples.count if alone else 1} sample(s) through {len(network.blocks)} blocks",
        "Look at fewer samples, or follow shorter paths with max_order=….",
        budget,
    )
    if options.centre_samples:
        raise InvalidInputError(
            f"centre_samples=True removes the mean over all samples, but memory holds them only in {pieces} pieces. "
            "Look at fewer samples."
        )
    size = max(1, samples.count // pieces)
    networks: dict[int, ResidualNetwork] = {}
    found = []
    for where, part in samples.chunks(size):
        if part.count not in networks:
            networks[part.count] = dissect(network.model, part.kwargs or part.args)
        found.append(Chunk(_fed(networks[part.count], part), where))
    return found


def _fed(network: ResidualNetwork, part: Samples) -> ResidualNetwork:
    """The network with other inputs of the same shapes."""
    arguments = type(network.inputs)(part.args, part.kwargs)
    return ResidualNetwork(network.model, arguments, network.exported, network.blocks, network.dense)


def _needed(network: ResidualNetwork, of: Of, options: PathOptions) -> int:
    plan = tangent_plan(network, network.node(network.output))
    kept = all_bytes(plan) if of == "gradient" else 0
    return kept + peak_bytes(plan, options.max_order)


def _coupled(model: nn.Module, samples: Samples) -> bool:
    with untouched(model):
        return is_batch_coupled(pure_model(model, lambda _: True), samples)


def _device(model: nn.Module) -> Any:
    return next((parameter.device for parameter in model.parameters()), "cpu")
