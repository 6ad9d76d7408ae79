"""One drawing of a network: the shortcut as a trunk, branches as ribbons, signal above, gradient below.

It is laid out once as curves and words; the page shows them as SVG, files as Matplotlib draws them.
"""

import math
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from skiplens.base.words import times

WIDTH, HEIGHT = 1040.0, 284.0
LEFT, RIGHT = 16.0, 230.0  # margins; the path spectrum stands in the right one
TRUNK, TALLEST = 176.0, 56.0  # height of the trunk, and of a ribbon above it
SIGNAL, GRADIENT = (30.0, 92.0), (208.0, 258.0)  # between which heights the curves run
BESIDE = 480.0  # pixels of a drawing that stands beside another one
THICKEST = 22.0  # pixels of all that flows at a join: the shortcut and the branch share them
PEN, UNKNOWN = 1.5, 3.0  # pixels of a line without any flow, and of one of which nobody knows how much flows
LETTERS = 22  # of a line beside the drawing
LABELLED = 22.0  # pixels between two numbers under the trunk
MOST, TOGETHER = 200, 50  # outermost blocks that are drawn one by one, and of a stage where there are more
Role = Literal["trunk", "ribbon", "signal", "gradient", "signal-area", "gradient-area", "mark", "bar", "alarm"]

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
        other: A drawing that stands beside this one, on the same scales.
    """

    blocks: tuple[BlockMark, ...]
    signal: tuple[float, ...] = ()
    gradient: tuple[float, ...] = ()
    spectrum: tuple[float, ...] = ()
    caption: str = ""
    unit: str = "blocks"
    other: "NetworkDrawing | None" = None

    @property
    def length(self) -> int:
        """How many places there are along the trunk."""
        outer = sum(block.parent is None for block in self.blocks)
        return outer or max(1, len(self.signal) - 1)

    @property
    def shares_known(self) -> bool:
        """Whether the thickness of any branch means something."""
        return any(math.isfinite(block.share) for block in self.blocks)

    @property
    def width(self) -> float:
        """Pixels from left to right."""
        return BESIDE if self.other else WIDTH

    @property
    def right(self) -> float:
        """Pixels of the right margin."""
        return LEFT if self.other else RIGHT


def drawing_from(data: Mapping[str, Any]) -> NetworkDrawing:
    """The drawing that was kept as data, by `dataclasses.asdict`."""
    return NetworkDrawing(**{**data, "blocks": tuple(BlockMark(**block) for block in data["blocks"])})


def side_by_side(left: NetworkDrawing, right: NetworkDrawing) -> tuple[NetworkDrawing, NetworkDrawing]:
    """Both drawings, narrow, on the same scales and without a spectrum."""
    plain = [replace(drawing, spectrum=(), caption="") for drawing in (left, right)]
    return replace(plain[0], other=plain[1]), replace(plain[1], other=plain[0])


@dataclass(frozen=True)
class Curve:
    """Points of cubic Bézier pieces (first, control, control, next, …) or, if `straight`, of a polygon."""

    role: Role
    points: tuple[Point, ...]
    thickness: float = PEN
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


Shape = Curve | Words


def layout(drawing: NetworkDrawing, folded: bool = True) -> Iterator[Shape]:
    """Everything that is drawn, from the back to the front; stages instead of blocks where there are many of them."""
    yield from _profile(drawing, drawing.signal, SIGNAL, "signal")
    yield from _profile(drawing, drawing.gradient, GRADIENT, "gradient")
    places, together = _places(drawing), stages(drawing) if folded else ()
    if drawing.blocks and not together:
        yield from _ends(drawing, (drawing.width - drawing.right - LEFT) / drawing.length)
    for stage in together:
        yield from stage.shapes(drawing)
    for index, (left, right, depth) in enumerate(() if together else places):
        yield from _block(drawing.blocks[index], index, left, right, depth)
    yield from _numbers(drawing, places)
    if not drawing.blocks:
        yield Curve("trunk", ((LEFT - 10, TRUNK), (drawing.width - drawing.right + 10, TRUNK)), PEN, straight=True)
        for place in _along(drawing, drawing.length + 1):
            yield Curve("mark", ((place, TRUNK - 7), (place, TRUNK + 7)), 2.0, straight=True)
        yield Words((LEFT, TRUNK - 16), "no shortcut passes by these layers", role="note")
    yield from _spectrum(drawing)


def _ends(drawing: NetworkDrawing, apart: float) -> Iterator[Curve]:
    """The trunk before the first and after the last of what stands so far apart."""
    whole = _flow(apart) if drawing.shares_known else UNKNOWN - PEN
    for start in (LEFT - 10, drawing.width - drawing.right):
        yield Curve("trunk", ((start, TRUNK), (start + 10, TRUNK)), PEN + whole, straight=True)


def _along(drawing: NetworkDrawing, count: int) -> list[float]:
    span = drawing.width - drawing.right - LEFT
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


def _block(block: BlockMark, index: int, left: float, right: float, depth: int) -> Iterator[Shape]:
    width, middle = right - left, (left + right) / 2
    crown = _crown(width, depth)
    yield from _parted((left, right), crown, block.share, index, beside=depth == 0)
    sunk = _flow(width) * block.share / 2 if math.isfinite(block.share) else 0.0
    yield from _mark(block.shortcut, (middle, TRUNK + sunk), max(2.5, min(6.0, width / 4)), index)
    if block.severity:
        yield from _alarm(middle, TRUNK - crown, index)


def _parted(
    ends: tuple[float, float], crown: float, share: float, block: int | None = None, beside: bool = True
) -> Iterator[Curve]:
    """All that flows, parted: the shortcut below, if it stands `beside`, and the branch; lines of no known share."""
    (left, right), known = ends, math.isfinite(share)
    whole, middle, width = _flow(right - left) if known else 0.0, (left + right) / 2, right - left
    part, pen = (whole * share, PEN) if known else (0.0, UNKNOWN)
    if beside:
        line = (left - 0.3, TRUNK + part / 2), (right + 0.3, TRUNK + part / 2)  # no light between neighbours
        yield Curve("trunk", line, pen + whole - part, straight=True, block=block)
    foot, top = TRUNK - (whole - part) / 2, TRUNK - crown
    rise = [(left, foot), (left + 0.26 * width, foot), (left + 0.18 * width, top), (middle, top)]
    fall = [(left + right - x, y) for x, y in reversed(rise)]
    yield Curve("ribbon", (*rise, *fall[1:]), pen + part, block=block)


def _flow(width: float) -> float:
    """How thick all that flows is drawn: thinner where blocks are narrow, so that branches do not meet."""
    return min(THICKEST, 0.3 * width)


def _mark(shortcut: str, at: Point, size: float, block: int | None) -> Iterator[Shape]:
    """The sign on the trunk of a shortcut that is not the identity."""
    if shortcut in ("identity", ""):  # '' where nobody looked
        return
    signs = {"projection": ((-1, -1), (1, -1), (1, 1), (-1, 1)), "pooling": ((-1, 1), (0, -1), (1, 1))}
    corners = signs.get(shortcut, ((0, -1), (1, 0), (0, 1), (-1, 0)))
    points = tuple((at[0] + size * across, at[1] + size * down) for across, down in corners)
    yield Curve("mark", points, straight=True, closed=True, block=block)


def _alarm(x: float, y: float, block: int | None) -> Iterator[Shape]:
    yield Curve("alarm", ((x, y), (x, y + 0.1)), 16.0, straight=True, block=block)  # a dot of a round pen
    yield Words((x, y + 4.5), "!", "middle", "alarm", block=block)


@dataclass(frozen=True)
class Stage:
    """Outermost blocks in a row that are drawn as one, by their numbers, and where they stand."""

    blocks: tuple[int, ...]
    left: float
    right: float

    def shapes(self, drawing: NetworkDrawing) -> Iterator[Shape]:
        """One wide branch as thick as its blocks' are on average, with how many they are."""
        marks, middle = [drawing.blocks[index] for index in self.blocks], (self.left + self.right) / 2
        crown = _crown(self.right - self.left, 0)
        if self.blocks[0] == 0:
            yield from _ends(drawing, self.right - self.left)
        yield from _parted((self.left, self.right), crown, self.share(drawing))
        yield from _mark(marks[0].shortcut, (self.left + 6, TRUNK), 6.0, None)
        if self.right - self.left >= 2 * LABELLED:
            yield Words((middle, TRUNK - 18), f"{len(marks)} blocks", "middle", "number")
        if any(mark.severity for mark in marks):
            yield from _alarm(middle, TRUNK - crown, None)

    def share(self, drawing: NetworkDrawing) -> float:
        """The mean of the shares that are known, NaN where none is."""
        known = [share for share in (drawing.blocks[index].share for index in self.blocks) if math.isfinite(share)]
        return sum(known) / len(known) if known else math.nan


def stages(drawing: NetworkDrawing) -> tuple[Stage, ...]:
    """The stages that are drawn instead of more than `MOST` blocks, none where there are fewer.

    A stage ends before a shortcut that is not the identity and where names begin otherwise; long ones are parted.
    """
    outer = [index for index, block in enumerate(drawing.blocks) if block.parent is None]
    if len(outer) <= MOST:
        return ()
    marks = [drawing.blocks[index] for index in outer]
    cuts = [0, *(i for i in range(1, len(outer)) if _begins(marks[i - 1], marks[i])), len(outer)]
    if len(cuts) > MOST // 4:  # too many to be seen
        cuts = [0, len(outer)]
    edges, found = _along(drawing, drawing.length + 1), []
    for first, last in pairwise(cuts):
        parts = math.ceil((last - first) / TOGETHER)
        ends = [first + (last - first) * part // parts for part in range(parts + 1)]
        found += [Stage(tuple(outer[i:j]), edges[i], edges[j]) for i, j in pairwise(ends)]
    return tuple(found)


def _begins(before: BlockMark, block: BlockMark) -> bool:
    def stem(name: str) -> str:  # what stands before the number of a block: stage1 of stage1.12.conv
        parts = name.split(".")
        return ".".join(parts[: max((i for i, part in enumerate(parts) if part.isdigit()), default=0)])

    return block.shortcut not in ("identity", "") or stem(before.name) != stem(block.name)


def _crown(width: float, depth: int) -> float:
    """How high a branch rises: flat arcs where blocks are narrow, and lower ones for blocks inside of others."""
    return min(TALLEST, 16 + 0.6 * width) / (1 + depth)


def _numbers(drawing: NetworkDrawing, places: Sequence[tuple[float, float, int]]) -> Iterator[Shape]:
    """The numbers of outermost blocks, as many as can be read."""
    outer = [(index, (left + right) / 2) for index, (left, right, depth) in enumerate(places) if depth == 0]
    apart = (drawing.width - drawing.right - LEFT) / max(1, len(outer))
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, len(outer) + 1) if step * apart >= LABELLED)
    for index, middle in outer[step - 1 :: step]:
        yield Words((middle, TRUNK + 26), str(index + 1), "middle", "number")


def _profile(
    drawing: NetworkDrawing, values: Sequence[float], room: tuple[float, float], role: Role
) -> Iterator[Shape]:
    """A curve on a logarithmic scale of at least a factor ten, with the factor from end to end in words."""
    usable = [value > 0 and math.isfinite(value) for value in values]
    first, count = (usable.index(True), sum(usable)) if any(usable) else (0, 0)
    top, bottom = room
    named = (LEFT, top - 12 if role == "signal" else bottom + 20)
    zeros = {value == 0 for value in values if not (value > 0 and math.isfinite(value))}
    bad = {0: "", 1: "zero" if True in zeros else "not finite", 2: "zero or not finite"}[len(zeros)]
    if count < 2 or not all(usable[first : first + count]):
        if values:
            where = f"in {len(values) - count} of {len(values)} places" if count else "everywhere"
            yield Words(named, f"{role}: {bad} {where}", role=role)
        return
    logs = [math.log10(value) for value in values[first : first + count]]
    beside = getattr(drawing.other, role) if drawing.other else ()
    scale = [*logs, *(math.log10(value) for value in beside if value > 0 and math.isfinite(value))]
    low, high = min(scale), max(scale)
    low, high = (low, high) if high - low >= 1 else ((low + high - 1) / 2, (low + high + 1) / 2)
    heights = [bottom - (bottom - top) * (value - low) / (high - low) for value in logs]
    places = _along(drawing, len(values))[first : first + count]
    points = tuple(zip(places, heights, strict=True))
    if not drawing.other:
        shade: Role = "signal-area" if role == "signal" else "gradient-area"
        floor = ((places[-1], bottom + 4), (places[0], bottom + 4))
        yield Curve(shade, (*points, *floor), 0.0, straight=True, closed=True)
    yield Curve(role, points, 2.5, straight=True)
    rise = 10 ** (logs[-1] - logs[0]) if abs(logs[-1] - logs[0]) < 300 else math.inf
    words = f"{role} {times(rise)}" if role == "signal" else f"{role} {times(1 / rise)} on its way back"
    words += f", {bad} in {len(values) - count} places" if bad else ""
    yield Words(named, words, role=role)


def _spectrum(drawing: NetworkDrawing) -> Iterator[Shape]:
    left, floor, tallest = drawing.width - RIGHT + 40, TRUNK, 90.0
    if any(drawing.spectrum):
        highest, count = max(drawing.spectrum), orders_drawn(drawing.spectrum)
        step = min(22.0, (RIGHT - 60) / count)
        for order, share in enumerate(drawing.spectrum[:count]):
            x, y = left + order * step, floor - tallest * share / highest
            corners = ((x, floor), (x, y), (x + 0.8 * step, y), (x + 0.8 * step, floor))
            yield Curve("bar", corners, 0.0, straight=True, closed=True)
        yield Words((left, floor + 18), "branches passed, 0 to " + str(count - 1), role="axis")
    for line, words in enumerate(textwrap.wrap(drawing.caption, LETTERS)):
        yield Words((left, floor - tallest - 44 + 20 * line), words, role="caption")


def orders_drawn(shares: Sequence[float]) -> int:
    """For how many orders a spectrum is drawn: for all of them, or where it ends before half, as far as it reaches."""
    last = int(np.flatnonzero(~(np.array(shares) < 1e-3 * max(shares)))[-1])
    return len(shares) if 2 * last >= len(shares) else min(len(shares), max(10, last + 2))


BESIDE_IT = ("bar", "axis", "caption")


@dataclass(frozen=True)
class LaidOut:
    """The drawing as a page wants it: what belongs to no block, and each block with what can be pressed of it."""

    drawing: NetworkDrawing

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Everything that is drawn."""
        return tuple(layout(self.drawing))

    @cached_property
    def unfolded(self) -> tuple[Shape, ...]:
        """The same with each block by itself."""
        return tuple(layout(self.drawing, folded=False))

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What stands for the blocks until one comes nearer."""
        return stages(self.drawing)

    def of_block(self, index: int | None) -> list[Shape]:
        """The shapes of one block, or those along the trunk that are of none."""
        return [shape for shape in self.unfolded if shape.block == index and shape.role not in BESIDE_IT]

    @property
    def spectrum(self) -> list[Shape]:
        """What stands beside the network: how deep it acts."""
        return [shape for shape in self.shapes if shape.role in BESIDE_IT]

    def reach(self, index: int) -> tuple[float, float, float, float]:
        """Left, top, width and height of what belongs to a block."""
        left, right, depth = _places(self.drawing)[index]
        above = _crown(right - left, depth) + THICKEST / 2
        return left, TRUNK - above, right - left, above + 32

    @property
    def front(self) -> list[int]:
        """The blocks from the back to the front: inner ones stand before those around them."""
        blocks = self.drawing.blocks
        return sorted(range(len(blocks)), key=lambda index: (blocks[index].parent is not None, index))


def morph(before: NetworkDrawing, after: NetworkDrawing) -> list[tuple[Shape | None, Shape | None]]:
    """Each shape of two drawings with what becomes of it, None for nothing; curves of a pair have as many points."""
    old, new = (_by_kind(drawing) for drawing in (before, after))
    return [_pair(old.get(kind), new.get(kind)) for kind in old | new]


def _by_kind(drawing: NetworkDrawing) -> dict[tuple[Any, ...], Shape]:
    found, met = dict[tuple[Any, ...], Shape](), Counter[tuple[Any, ...]]()
    for shape in layout(drawing):
        form = shape.text if isinstance(shape, Words) else shape.role in ("signal", "gradient") or len(shape.points)
        kind = (type(shape), shape.role, shape.block, form)
        found[*kind, met[kind]] = shape
        met[kind] += 1
    return found


def _pair(old: Shape | None, new: Shape | None) -> tuple[Shape | None, Shape | None]:
    known = old or new
    if isinstance(old, Curve) and isinstance(new, Curve):
        count = max(len(old.points), len(new.points))
        return _resampled(old, count), _resampled(new, count)
    if isinstance(known, Curve) and known.role == "ribbon":  # it grows out of the trunk, or falls back to it
        flat = replace(known, points=tuple((x, TRUNK) for x, _ in known.points), thickness=0.0)
        return old or flat, new or flat
    return old, new


def _resampled(curve: Curve, count: int) -> Curve:
    """A polygon from left to right with `count` corners, its own ends among them."""
    if len(curve.points) == count:
        return curve
    x, y = np.array(curve.points).T
    places = np.linspace(x[0], x[-1], count)
    return replace(curve, points=tuple(zip(places.tolist(), np.interp(places, x, y).tolist(), strict=True)))


def path_data(curve: Curve) -> str:
    """The curve as the `d` of an SVG path."""
    start, *rest = (f"{x:.1f} {y:.1f}" for x, y in curve.points)
    pieces = f"L{' L'.join(rest)}" if curve.straight else f"C{' '.join(rest)}"
    return f"M{start}{pieces}{'Z' * curve.closed}"
