"""Which part of the page speaks of which block: cells, bars, table rows and findings by the block's number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from skiplens.figures import Figure
from skiplens.findings.finding import ORDER
from skiplens.reports.drawing import BlockCell
from skiplens.reports.findings_section import FindingCard


@dataclass(frozen=True)
class BlockIndex:
    """Numbers blocks as they run, from 0; the page's script knows blocks by these numbers only."""

    cells: tuple[BlockCell, ...]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each block by its name."""
        return {cell.name: number for number, cell in enumerate(self.cells)}

    def of_names(self, names: Sequence[str]) -> list[int]:
        """The numbers of those `names` that are blocks."""
        return [self.numbers[name] for name in names if name in self.numbers]

    def of_row(self, row: Mapping[str, Any]) -> int | None:
        """The number of the block that a table's row speaks of."""
        return self.numbers.get(str(row.get("block")))

    def of_figure(self, figure: Figure) -> list[tuple[int, float]]:
        """Each block with its place along the figure's x axis."""
        return [(self.numbers[name], place) for name, place in figure.block_places if name in self.numbers]

    def severities(self, cards: Sequence[FindingCard]) -> dict[int, str]:
        """The worst severity above a note of the findings that point at each block.

        A finding that names all of several blocks points at none of them.
        """
        worst: dict[int, str] = {}
        for card in sorted(cards, key=lambda card: ORDER.index(card.severity), reverse=True):
            named = self.of_names(card.where)
            if card.severity != "note" and (len(named) < len(self.cells) or len(self.cells) == 1):
                worst |= dict.fromkeys(named, card.severity)
        return worst
