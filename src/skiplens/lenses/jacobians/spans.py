"""Which parts of a network are looked at: blocks, spans of blocks, the whole network."""

from collections.abc import Iterable
from dataclasses import dataclass

from skiplens.core.errors import InvalidInputError
from skiplens.derivatives.jacobian import Part, coupling_norms, frozen_call
from skiplens.derivatives.polynomial.plan import sources_of
from skiplens.lenses.jacobians.options import PartName
from skiplens.residual import ResidualBlock, ResidualNetwork, part_function, span_function

BlockChoice = Iterable[str | tuple[str, str]] | None
"""Names of blocks, and pairs (first, last) for the span from the input of one to the join of another; None for all.

The last of a pair may be ``"output"``, the end of the network.
"""

NETWORK, OUTPUT = "network", "output"


@dataclass(frozen=True)
class Span:
    """From one node to another; the block, if these are a block's input and join."""

    name: str
    start: str
    end: str
    block: ResidualBlock | None = None

    def part(self, network: ResidualNetwork, samples: int, part: PartName = "block") -> Part:
        """The function between the nodes, with and without coupling of samples."""
        norms = coupling_norms(network, self.start, self.end, samples)
        if self.block is None:
            function = span_function(network, self.start, self.end)
            frozen = span_function(network, self.start, self.end, frozen_call(norms))
        else:
            function = part_function(network, self.block, part)
            frozen = part_function(network, self.block, part, frozen_call(norms))
        point = network.run([self.start])[self.start].detach()
        channels = sum(statistics.channels for statistics in norms.values())
        label = self.name if part == "block" else f"{self.name} ({part})"
        return Part(label, function, frozen if norms else None, point, samples, channels)


def spans_of(network: ResidualNetwork, blocks: BlockChoice, with_network: bool) -> list[Span]:
    """The chosen spans in order, the whole network last."""
    if isinstance(blocks, str):
        blocks = [blocks]
    chosen = [block.name for block in network.blocks] if blocks is None else list(blocks)
    spans = [_span(network, choice) for choice in chosen]
    if with_network:
        source = sources_of(network, network.node(network.output))[0]
        spans.append(Span(NETWORK, source.name, network.output))
    if not spans:
        raise InvalidInputError("Nothing was chosen to look at; name blocks or ask for network=True.")
    return spans


def _span(network: ResidualNetwork, choice: str | tuple[str, str]) -> Span:
    if isinstance(choice, str):
        block = network.block(choice)
        return Span(block.name, block.input, block.join, block)
    if len(choice) != 2:
        raise InvalidInputError(f"blocks holds {choice!r}; a span is a pair (first block, last block or 'output').")
    first = network.block(choice[0])
    end = network.output if choice[1] == OUTPUT else network.block(choice[1]).join
    if network.node(end) < network.node(first.input) or end == first.input:
        raise InvalidInputError(f"The span from {choice[0]!r} to {choice[1]!r} runs backwards; name the earlier first.")
    return Span(f"{choice[0]} -> {choice[1]}", first.input, end)
