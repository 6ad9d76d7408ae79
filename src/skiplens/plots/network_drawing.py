"""One drawing of a network: the shortcut as a trunk, branches as ribbons, signal above, gradient below.

It is laid out once as curves and words; the page shows them as SVG, files as Matplotlib draws them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

WIDTH, HEIGHT = 1040.0, 250.0
LEFT, RIGHT = 16.0, 230.0  # margins; the path spectrum stands in the right one
TRUNK, TALLEST = 150.0, 62.0  # height of the trunk, and of a ribbon above it
SIGNAL, GRADIENT = (24.0, 60.0), (182.0, 222.0)  # between which heights the curves run
NARROWEST = 13.0  # pixels of a block: with more of them the drawing grows and is scrolled
THICKEST = 26.0  # pixels of a ribbon that is all of the sum
Role = Literal["trunk", "ribbon", "signal", "gradient", "mark", "bar", "alarm"]

Point = tuple[float, float]


@dataclass(frozen=True)
class BlockMark:
    """What is drawn of a block; `share` is the branch's part of the power at the join, NaN where it is not known."""

    name: str
    shortcut: str
    branch_depth: int
    share: float = math.nan
    words: str = ""
    parent: int | None = None
    severity: str = ""


@dataclass(frozen=True)
class NetworkDrawing:
    """A network to be drawn.

    Attributes:
        blocks: Its residual blocks in the order in which they run.
        signal: Size of the signal before the first and after each outermost block (or layer of a plain chain).
        gradient: Size of the gradient there.
        spectrum: Shares of energy that pass so many branches; empty where that is not known.
        caption: How deep it acts, in words.
        unit: What is counted along the trunk.
    """

    blocks: tuple[BlockMark, ...]
    signal: tuple[float, ...] = ()
    gradient: tuple[float, ...] = ()
    spectrum: tuple[float, ...] = ()
    caption: str = ""
    unit: str = "blocks"

    @property
    def length(self) -> int:
        """How many places there are along the trunk."""
        outer = sum(block.parent is None for block in self.blocks)
        return outer or max(1, len(self.signal) - 1)

    @property
    def width(self) -> float:
        """Pixels from left to right."""
        return max(WIDTH, LEFT + RIGHT + NARROWEST * self.length)


@dataclass(frozen=True)
class Curve:
    """Points of cubic Bézier pieces (first, control, control, next, …) or, if `straight`, of a polygon."""

    role: Role
    points: tuple[Point, ...]
    thickness: float = 1.5
    straight: bool = False
    closed: bool = False
    block: int | None = None


@dataclass(frozen=True)
class Words:
    """Text at a place."""

    at: Point
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    role: str = "note"
    block: int | None = None


def layout(drawing: NetworkDrawing) -> Iterator[Curve | Words]:
    """Everything that is drawn, from the back to the front."""
    end = drawing.width - RIGHT
    yield Curve("trunk", ((LEFT - 10, TRUNK), (end + 10, TRUNK)), 4.0, straight=True)
    for index, (left, right, depth) in enumerate(_places(drawing)):
        yield from _block(drawing.blocks[index], index, left, right, depth)
    if not drawing.blocks:
        for place in _along(drawing, drawing.length + 1):
            yield Curve("mark", ((place, TRUNK - 7), (place, TRUNK + 7)), 2.0, straight=True)
        yield Words((LEFT, TRUNK - 16), "no shortcut passes by these layers", role="note")
    yield from _profile(drawing, drawing.signal, SIGNAL, "signal")
    yield from _profile(drawing, drawing.gradient, GRADIENT, "gradient")
    yield from _spectrum(drawing)


def _along(drawing: NetworkDrawing, count: int) -> list[float]:
    span = drawing.width - RIGHT - LEFT
    return [LEFT + span * place / max(1, count - 1) for place in range(count)]


def _places(drawing: NetworkDrawing) -> list[tuple[float, float, int]]:
    """Left and right end of each block, and how many blocks it lies in; inner ones share the width of theirs."""
    edges, outer = _along(drawing, drawing.length + 1), 0
    inside = dict.fromkeys(range(len(drawing.blocks)), 0)
    for block in drawing.blocks:
        if block.parent is not None:
            inside[block.parent] += 1
    found, met = dict[int, tuple[float, float, int]](), dict[int, int]()
    for index in sorted(range(len(drawing.blocks)), key=lambda i: (drawing.blocks[i].parent is not None, i)):
        parent = drawing.blocks[index].parent
        if parent is None:
            found[index] = (edges[outer], edges[outer + 1], 0)
            outer += 1
            continue
        left, right, depth = found.get(parent, (edges[0], edges[1], 0))
        number, piece = met.get(parent, 0), (right - left) / (inside[parent] + 1)
        met[parent] = number + 1
        found[index] = (left + piece * (number + 0.5), left + piece * (number + 1.5), depth + 1)
    return [found[index] for index in range(len(drawing.blocks))]


def _block(block: BlockMark, index: int, left: float, right: float, depth: int) -> Iterator[Curve | Words]:
    width, middle = right - left, (left + right) / 2
    top = TRUNK - TALLEST * 4 / 3 / (1 + depth)  # the controls of a cubic lie a third above its crown
    known = math.isfinite(block.share)
    thickness = min(1.5 + THICKEST * block.share, max(3.0, 0.7 * width)) if known else 1.5
    inner = 0.12 * width
    path = ((left + inner, TRUNK), (left + inner, top), (right - inner, top), (right - inner, TRUNK))
    yield Curve("ribbon", path, thickness, block=index)
    size = max(2.5, min(6.0, width / 4))
    if block.shortcut == "projection":
        box = [(middle - size, TRUNK - size), (middle + size, TRUNK - size), (middle + size, TRUNK + size)]
        yield Curve("mark", (*box, (middle - size, TRUNK + size)), straight=True, closed=True, block=index)
    elif block.shortcut == "pooling":
        tip = [(middle - size, TRUNK + size), (middle, TRUNK - size), (middle + size, TRUNK + size)]
        yield Curve("mark", tuple(tip), straight=True, closed=True, block=index)
    elif block.shortcut != "identity":
        tip = [(middle, TRUNK - size), (middle + size, TRUNK), (middle, TRUNK + size), (middle - size, TRUNK)]
        yield Curve("mark", tuple(tip), straight=True, closed=True, block=index)
    if block.severity:
        place = TRUNK - TALLEST / (1 + depth)
        yield Curve("alarm", _disc(middle, place, 8.0), closed=True, block=index)
        yield Words((middle, place + 4.5), "!", "middle", "alarm", block=index)
    if depth == 0 and width >= 20:
        yield Words((middle, TRUNK + 20), str(index + 1), "middle", "number", block=index)


def _disc(x: float, y: float, radius: float) -> tuple[Point, ...]:
    k = 0.5523 * radius  # the control length that makes four cubics a circle to 0.03 %
    return (
        (x, y - radius), (x + k, y - radius), (x + radius, y - k), (x + radius, y), (x + radius, y + k),
        (x + k, y + radius), (x, y + radius), (x - k, y + radius), (x - radius, y + k), (x - radius, y),
        (x - radius, y - k), (x - k, y - radius), (x, y - radius),
    )  # fmt: skip


def _profile(
    drawing: NetworkDrawing, values: Sequence[float], room: tuple[float, float], role: Role
) -> Iterator[Curve | Words]:
    """A curve on a logarithmic scale of at least a factor ten, with the factor from end to end in words."""
    usable = [value > 0 and math.isfinite(value) for value in values]
    first, count = (usable.index(True), sum(usable)) if any(usable) else (0, 0)
    if count < 2 or not all(usable[first : first + count]):
        return
    logs = [math.log10(value) for value in values[first : first + count]]
    low, high = min(logs), max(logs)
    low, high = (low, high) if high - low >= 1 else ((low + high - 1) / 2, (low + high + 1) / 2)
    top, bottom = room
    heights = [bottom - (bottom - top) * (value - low) / (high - low) for value in logs]
    places = _along(drawing, len(values))[first : first + count]
    yield Curve(role, tuple(zip(places, heights, strict=True)), 2.5, straight=True)
    rise = 10 ** (logs[-1] - logs[0]) if abs(logs[-1] - logs[0]) < 300 else math.inf
    words = f"{role} {times(rise)}" if role == "signal" else f"{role} {times(1 / rise)} on its way back"
    words += f", zero or not finite in {len(values) - count} places" if count < len(values) else ""
    yield Words((LEFT, top - 8 if role == "signal" else bottom + 18), words, role=role)


def _spectrum(drawing: NetworkDrawing) -> Iterator[Curve | Words]:
    left, floor, tallest = drawing.width - RIGHT + 40, TRUNK, 80.0
    if drawing.spectrum:
        highest, count = max(drawing.spectrum) or 1.0, len(drawing.spectrum)
        step = min(22.0, (RIGHT - 60) / count)
        for order, share in enumerate(drawing.spectrum):
            x, y = left + order * step, floor - tallest * share / highest
            corners = ((x, floor), (x, y), (x + 0.8 * step, y), (x + 0.8 * step, floor))
            yield Curve("bar", corners, 0.0, straight=True, closed=True)
        yield Words((left, floor + 18), "branches passed, 0 to " + str(count - 1), role="note")
    for line, words in enumerate(drawing.caption.split("\n") if drawing.caption else ()):
        yield Words((left, floor - tallest - 38 + 19 * line), words, role="caption")


def times(factor: float) -> str:
    """A factor as people write it: ×1.3, ×50,000, ÷1,900."""
    if not (factor > 0 and math.isfinite(factor)):
        return "×?"
    sign, size = ("×", factor) if factor >= 0.995 else ("÷", 1 / factor)
    if size < 10:
        return f"{sign}{size:.2g}"
    digits = -(len(str(int(size))) - 2)
    return f"{sign}{int(round(size, digits)):,}" if size < 1e9 else f"{sign}10^{math.log10(size):.0f}"


@dataclass(frozen=True)
class LaidOut:
    """The drawing as a page wants it: what belongs to no block, and each block with what can be pressed of it."""

    drawing: NetworkDrawing

    @cached_property
    def shapes(self) -> tuple[Curve | Words, ...]:
        """Everything that is drawn."""
        return tuple(layout(self.drawing))

    def of_block(self, index: int | None) -> list[Curve | Words]:
        """The shapes of one block, or those of none."""
        return [shape for shape in self.shapes if shape.block == index]

    def reach(self, index: int) -> tuple[float, float, float, float]:
        """Left, top, width and height of what belongs to a block."""
        left, right, depth = _places(self.drawing)[index]
        above = TALLEST / (1 + depth) + THICKEST / 2
        return left, TRUNK - above, right - left, above + 26

    @property
    def front(self) -> list[int]:
        """The blocks from the back to the front: inner ones stand before those around them."""
        blocks = self.drawing.blocks
        return sorted(range(len(blocks)), key=lambda index: (blocks[index].parent is not None, index))


def path_data(curve: Curve) -> str:
    """The curve as the `d` of an SVG path."""
    start, *rest = (f"{x:.1f} {y:.1f}" for x, y in curve.points)
    pieces = f"L{' L'.join(rest)}" if curve.straight else f"C{' '.join(rest)}"
    return f"M{start}{pieces}{'Z' * curve.closed}"
