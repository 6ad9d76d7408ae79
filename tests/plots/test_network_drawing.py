"""The drawing of a network: what is where, how thick, and in which words."""

import math
from dataclasses import asdict, replace

import pytest
from matplotlib.image import imread

from skiplens.plots.matplotlib_file import save_card, save_drawing
from skiplens.plots.network_drawing import (
    BESIDE,
    LEFT,
    LETTERS,
    RIGHT,
    THICKEST,
    TRUNK,
    BlockMark,
    Curve,
    LaidOut,
    NetworkDrawing,
    Words,
    drawing_from,
    layout,
    morph,
    orders_drawn,
    path_data,
    side_by_side,
    stages,
)


def blocks(count, **changes):
    return tuple(BlockMark(f"b{i}", "identity", 2, 0.25, f"block {i}", **changes) for i in range(count))


def curves(drawing, role):
    return [shape for shape in layout(drawing) if isinstance(shape, Curve) and shape.role == role]


def words(drawing, role):
    return [shape.text for shape in layout(drawing) if isinstance(shape, Words) and shape.role == role]


def test_ribbons_stand_side_by_side_and_are_as_thick_as_their_share():
    marks = [BlockMark("a", "identity", 2, 0.1), BlockMark("b", "identity", 2, 0.6)]
    first, second = curves(NetworkDrawing(tuple(marks)), "ribbon")
    assert first.points[-1][0] == second.points[0][0], "where one joins the next leaves"
    assert second.thickness - first.thickness == pytest.approx(0.5 * THICKEST)
    (unknown,) = curves(NetworkDrawing((BlockMark("a", "identity", 2),)), "ribbon")
    assert unknown.thickness == 3.0


def sides(curve, place):
    """Upper and lower side of a curve where it begins (0) or ends (-1); the pen alone is 1.5 thick."""
    height = curve.points[place][1]
    return pytest.approx((height - (curve.thickness - 1.5) / 2, height + (curve.thickness - 1.5) / 2))


def test_shortcut_and_branch_share_all_that_flows_and_lie_on_each_other_at_the_joins():
    marks = (BlockMark("a", "identity", 2, 0.1), BlockMark("b", "identity", 2, 0.6))
    before, after, *trunks = curves(NetworkDrawing(marks), "trunk")
    for end in (before, after):  # where nothing is parted
        assert sides(end, 0) == (TRUNK - THICKEST / 2, TRUNK + THICKEST / 2)
    for mark, trunk, ribbon in zip(marks, trunks, curves(NetworkDrawing(marks), "ribbon"), strict=True):
        cut = TRUNK - THICKEST / 2 + mark.share * THICKEST
        for place in (0, -1):
            assert sides(ribbon, place) == (TRUNK - THICKEST / 2, cut)
            assert sides(trunk, place) == (cut, TRUNK + THICKEST / 2) and trunk.block == ribbon.block
        assert ribbon.points[0][1] == ribbon.points[1][1], "it leaves along the trunk"
        assert ribbon.points[3][1] < cut - 20, "and rises from it"


def test_many_blocks_share_the_width_and_only_some_have_their_number():
    few, many = NetworkDrawing(blocks(8)), NetworkDrawing(blocks(200))
    assert many.width == few.width
    assert words(few, "number") == [str(number) for number in range(1, 9)]
    assert words(many, "number") == [str(number) for number in range(10, 201, 10)]
    ribbons = curves(many, "ribbon")
    assert len(ribbons) == 200 and not stages(many)
    assert min(x for ribbon in ribbons for x, _ in ribbon.points) >= LEFT
    assert max(x for ribbon in ribbons for x, _ in ribbon.points) <= many.width - RIGHT


def deep(*lengths, kind="projection"):
    """Stages of so many blocks, each but the first begun by a shortcut of that kind; shares 0.1, 0.2, … by stage."""
    marks = []
    for number, length in enumerate(lengths):
        kinds = [kind if number else "identity", *["identity"] * (length - 1)]
        marks += [BlockMark(f"s{number}.{i}.f", k, 2, (number + 1) / 10) for i, k in enumerate(kinds)]
    return NetworkDrawing(tuple(marks))


def test_more_than_two_hundred_blocks_are_folded_into_stages():
    drawing = deep(40, 120, 45)
    assert [len(stage.blocks) for stage in stages(drawing)] == [40, 40, 40, 40, 45], "120 are three times 40"
    assert [index for stage in stages(drawing) for index in stage.blocks] == list(range(205))
    ribbons, labels = curves(drawing, "ribbon"), words(drawing, "number")
    assert [ribbon.thickness for ribbon in ribbons] == pytest.approx(
        [1.5 + THICKEST * share for share in (0.1, 0.2, 0.2, 0.2, 0.3)]
    )
    assert [label for label in labels if "blocks" in label] == ["40 blocks"] * 4 + ["45 blocks"]
    assert len(curves(drawing, "mark")) == 2, "where a projection begins a stage"
    laid_out = LaidOut(drawing)
    assert sum(shape.role == "ribbon" for index in range(205) for shape in laid_out.of_block(index)) == 205
    assert not any(shape.role == "ribbon" for shape in laid_out.of_block(None)), "stages are groups of their own"
    stage = laid_out.stages[1]
    assert stage.share(drawing) == pytest.approx(0.2) and stage.left == pytest.approx(ribbons[1].points[0][0])


def test_stages_begin_where_names_do_and_not_at_every_block():
    assert [len(stage.blocks) for stage in stages(deep(50, 50, 50, 51, kind="identity"))] == [50, 50, 50, 25, 26]
    every = NetworkDrawing(tuple(BlockMark(f"b{i}", "projection", 2) for i in range(300)))
    assert [len(stage.blocks) for stage in stages(every)] == [50] * 6
    lines = curves(every, "ribbon") + curves(every, "trunk")
    assert len(lines) == 6 + 6 + 2 and {line.thickness for line in lines} == {3.0}, "shares are not known"


def test_a_stage_tells_of_its_findings():
    drawing = deep(205)
    marks = list(drawing.blocks)
    marks[7] = replace(marks[7], severity="critical")
    drawing = replace(drawing, blocks=tuple(marks))
    (alarm,) = curves(drawing, "alarm")
    first = stages(drawing)[0]
    assert alarm.points[0][0] == pytest.approx((first.left + first.right) / 2)


def test_inner_blocks_stand_below_the_one_around_them_and_in_front():
    marks = (BlockMark("in", "identity", 1, 0.2, parent=1), BlockMark("out", "identity", 3, 0.2))
    drawing = NetworkDrawing(marks)
    inner, outer = curves(drawing, "ribbon")
    assert outer.points[0][0] < inner.points[0][0] < inner.points[-1][0] < outer.points[-1][0]
    assert min(y for _, y in inner.points) > min(y for _, y in outer.points)
    assert LaidOut(drawing).front == [1, 0] and drawing.length == 1


@pytest.mark.parametrize(("kind", "corners"), [("identity", 0), ("projection", 4), ("pooling", 3), ("other", 4)])
def test_shortcuts_that_are_not_the_identity_are_marked(kind, corners):
    found = curves(NetworkDrawing((BlockMark("a", kind, 2, 0.5),)), "mark")
    assert [len(mark.points) for mark in found] == [corners] * (corners > 0)


def test_a_finding_is_marked_on_its_block():
    marks = (BlockMark("a", "identity", 2, 0.5), BlockMark("b", "identity", 2, 0.5, severity="critical"))
    (alarm,) = curves(NetworkDrawing(marks), "alarm")
    assert alarm.block == 1


def test_curves_are_logarithmic_and_told_as_factors():
    drawing = NetworkDrawing(blocks(2), (1.0, 10.0, 100.0), (5000.0, 50.0, 0.5))
    (signal,), (gradient,) = curves(drawing, "signal"), curves(drawing, "gradient")
    heights = [y for _, y in signal.points]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2]) and heights[2] < heights[0]
    assert gradient.points[0][1] < gradient.points[-1][1]
    assert words(drawing, "signal") == ["signal ×100"]
    assert words(drawing, "gradient") == ["gradient ×10,000 on its way back"]


def test_what_is_not_finite_ends_the_curve_and_is_told():
    drawing = NetworkDrawing(blocks(3), (1.0, 1e20, math.inf, math.inf), (0.0, 0.0, 0.0, 0.0))
    (signal,) = curves(drawing, "signal")
    assert len(signal.points) == 2 and words(drawing, "signal")[0].endswith(", not finite in 2 places")
    assert not curves(drawing, "gradient") and words(drawing, "gradient") == ["gradient: zero everywhere"]
    parts = NetworkDrawing(blocks(3), (0.0, 1.0, math.nan, 2.0), (1.0, 0.0, 0.0, 0.0))
    assert words(parts, "signal") == ["signal: zero or not finite in 2 of 4 places"]
    assert words(parts, "gradient") == ["gradient: zero in 3 of 4 places"]


def test_small_changes_stay_small():
    (signal,) = curves(NetworkDrawing(blocks(2), (1.0, 1.01, 1.02)), "signal")
    assert abs(signal.points[0][1] - signal.points[-1][1]) < 1, "a factor ten is the least that fills the room"


def test_a_chain_without_shortcuts_has_strokes_instead_of_ribbons():
    drawing = NetworkDrawing((), (1.0, 0.5, 0.25), (1.0, 2.0, 4.0), unit="layers")
    assert len(curves(drawing, "mark")) == 3 and not curves(drawing, "ribbon")
    assert "no shortcut passes by these layers" in words(drawing, "note")


def test_paths_of_svg():
    assert path_data(Curve("mark", ((0, 1), (2, 3)), straight=True, closed=True)) == "M0.0 1.0L2.0 3.0Z"
    assert path_data(Curve("ribbon", ((0, 0), (0, 1), (1, 1), (1, 0)))) == "M0.0 0.0C0.0 1.0 1.0 1.0 1.0 0.0"


def test_files_are_drawn(tmp_path):
    drawing = NetworkDrawing(
        blocks(3, severity="warning"), (1.0, 2.0, 3.0, 4.0), (4.0, 3.0, 2.0, 1.0), (0.2, 0.8), "deep"
    )
    save_drawing(drawing, tmp_path / "a.svg")
    save_card(drawing, "a $name", ("a verdict", "of many words " * 30), tmp_path / "card.png")
    assert "<svg" in (tmp_path / "a.svg").read_text()
    content = (tmp_path / "card.png").read_bytes()
    assert [int.from_bytes(content[start : start + 4], "big") for start in (16, 20)] == [1200, 630]


@pytest.mark.parametrize("letters", [6, 30, 45, 46, 110])
def test_the_words_of_a_card_stay_on_it(letters, tmp_path):
    headline = ("MM " * letters)[:letters]
    save_card(NetworkDrawing(blocks(3)), "a name", (headline, "W of many words " * 30), tmp_path / "card.png")
    pixels = imread(tmp_path / "card.png")[..., :3]
    assert (pixels[:, -8:] == 1).all() and (pixels < 1).any(), "nothing is drawn along the right edge"


def pair():
    left = NetworkDrawing(blocks(2), (1.0, 10.0, 1e4), (5.0, 5.0, 5.0), (0.5, 0.5), "acts")
    return side_by_side(left, NetworkDrawing(blocks(3), (1.0, 1.0, 1.0, 1.0), (5.0, 5.0, 5.0, 5.0)))


def test_a_drawing_kept_as_data_is_the_same_drawing():
    drawing = NetworkDrawing(blocks(2), (1.0, 2.0, 3.0), (1.0, 1.0, 1.0))
    assert drawing_from(asdict(drawing)) == drawing


def test_two_drawings_side_by_side_have_the_same_scales():
    left, right = pair()
    assert left.width == right.width == BESIDE and not curves(left, "bar") and not words(left, "caption")
    (rising,), (flat,) = curves(left, "signal"), curves(right, "signal")
    low, high = rising.points[0][1], rising.points[-1][1]
    assert {y for _, y in flat.points} == {low} and low > high, "as large as the signal of the other at its start"
    assert max(x for x, _ in rising.points) == BESIDE - LEFT


def test_a_morph_leads_from_one_drawing_to_the_other():
    left, right = pair()
    moved = morph(left, right)
    for side, drawing in enumerate((left, right)):
        seen = [shape[side] for shape in moved if isinstance(shape[side], Words)]
        assert sorted(w.text for w in seen) == sorted(w.text for w in layout(drawing) if isinstance(w, Words))
    both = [(a, b) for a, b in moved if isinstance(a, Curve) and isinstance(b, Curve)]
    assert all(len(a.points) == len(b.points) and a.role == b.role for a, b in both)
    assert [a.role for a, b in both].count("ribbon") == 3
    (grown,) = (a for a, b in both if a.role == "ribbon" and a.block == 2)
    assert {y for _, y in grown.points} == {TRUNK} and grown.thickness == 0, "a new branch grows out of the trunk"
    ((old, new),) = ((a, b) for a, b in both if a.role == "signal")
    (rising,), (flat,) = curves(left, "signal"), curves(right, "signal")
    assert new == flat and len(old.points) == 4
    assert old.points[0] == rising.points[0] and old.points[-1] == pytest.approx(rising.points[-1])


def test_how_deep_it_acts_is_told_in_lines_that_fit_beside_the_drawing():
    told = words(NetworkDrawing(blocks(2), caption="acts less than 0.01 blocks deep,\nnot 240"), "caption")
    assert told == ["acts less than 0.01", "blocks deep, not 240"] and max(map(len, told)) <= LETTERS
    assert (
        words(NetworkDrawing(blocks(2), caption="acts 3.6 blocks deep,\nnot 8"), "caption")[0]
        == "acts 3.6 blocks deep,"
    )


@pytest.mark.parametrize(
    ("shares", "drawn"),
    [
        ([0.1, 0.5, 0.3, 0.1], 4),
        ([1.0, *[0.0] * 240], 10),  # nothing but the first few orders
        ([*[0.05] * 20, *[1e-9] * 221], 21),
        ([0.0] * 150 + [1.0] + [0.0] * 90, 241),  # beyond half: how deep it could be is seen too
        ([1.0, 0.0, 0.0], 3),
    ],
)
def test_a_spectrum_is_drawn_as_far_as_it_reaches(shares, drawn):
    assert orders_drawn(shares) == drawn
    drawing = NetworkDrawing(blocks(len(shares) - 1), spectrum=tuple(shares), caption="acts")
    assert len(curves(drawing, "bar")) == drawn
    assert words(drawing, "axis") == [f"branches passed, 0 to {drawn - 1}"]


def test_the_trunk_goes_on_as_thick_before_and_behind_stages():
    drawing = deep(120, 120)
    trunks, (first, *_, last) = curves(drawing, "trunk"), stages(drawing)
    stubs = [trunk for trunk in trunks if trunk.points[1][0] - trunk.points[0][0] == 10]
    assert [stub.points[0][0] for stub in stubs] == [LEFT - 10, last.right]
    assert {stub.thickness for stub in stubs} == {1.5 + THICKEST}
    assert all(stub in list(first.shapes(drawing)) for stub in stubs), "a page shows and hides them with the stages"
