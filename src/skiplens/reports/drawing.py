"""The residual structure as a drawing: one cell a block, the shortcut straight on, the branch above it."""

from html import escape

from skiplens.readings import StructureReading

CELL_WIDTH, CELL_HEIGHT, CELLS_A_ROW = 74, 92, 12
_MARK_OF_SHORTCUT = {
    "identity": "",
    "projection": '<rect class="mark" x="31" y="58" width="12" height="12" />',
    "pooling": '<path class="mark" d="M30 70 L37 57 L44 70 Z" />',
    "truncated": '<path class="mark" d="M34 56 L34 72 M40 56 L40 72" />',
    "other": '<circle class="mark" cx="37" cy="64" r="6" />',
}


def draw_structure(reading: StructureReading) -> str:
    """An SVG of the blocks in the order in which they run, wrapped like text; empty without blocks."""
    count = len(reading.block_names)
    if not count:
        return ""
    rows = -(-count // CELLS_A_ROW)
    width, height = min(count, CELLS_A_ROW) * CELL_WIDTH + 8, rows * CELL_HEIGHT
    cells = "".join(_cell(reading, index) for index in range(count))
    label = escape(f"{count} residual blocks from input to output", quote=True)
    return (
        f'<svg class="structure" role="img" aria-label="{label}" viewBox="0 0 {width} {height}" width="{width}" '
        f'style="max-width:100%;height:auto" xmlns="http://www.w3.org/2000/svg">{cells}</svg>'
    )


def legend(reading: StructureReading) -> tuple[tuple[str, str], ...]:
    """The kinds of shortcut in the drawing, each with its mark as a small SVG."""
    kinds = dict.fromkeys(reading.shortcuts)
    frame = '<svg class="structure key" viewBox="26 52 22 24" width="22" height="24" aria-hidden="true">{}</svg>'
    line = '<path class="line" d="M26 64 L48 64" />'
    return tuple((kind, frame.format(line + _MARK_OF_SHORTCUT[kind])) for kind in kinds)


def _cell(reading: StructureReading, index: int) -> str:
    column, row = index % CELLS_A_ROW, index // CELLS_A_ROW
    depth, shortcut = int(reading.branch_depths[index]), reading.shortcuts[index]
    kind = "block nested" if reading.parents[index] is not None else "block"
    place = f"translate({column * CELL_WIDTH},{row * CELL_HEIGHT})"
    title = escape(f"{reading.block_names[index]}: {shortcut} shortcut, {depth} weight layers in the branch")
    return (
        f'<g class="{kind}" data-block="{index}" transform="{place}">'
        f"<title>{title}</title>"
        '<path class="line" d="M0 64 L74 64" /><path class="line" d="M8 64 L8 30 L18 30 M56 30 L66 30 L66 57" />'
        f'<rect class="branch" x="18" y="16" width="38" height="28" rx="5" /><text x="37" y="35">{depth}</text>'
        f"{_MARK_OF_SHORTCUT[shortcut]}"
        '<circle class="join" cx="66" cy="64" r="7" /><path class="plus" d="M62 64 L70 64 M66 60 L66 68" />'
        f'<text class="number" x="37" y="86">{index + 1}</text></g>'
    )
