"""Doors, nearest names, progress, memory: the small words of core."""

import os

import pytest

from skiplens.base.errors import MissingDependencyError, TooLargeError, did_you_mean
from skiplens.base.memory import budget_bytes, free_bytes, readable, require_fits
from skiplens.base.optional_imports import optional_import
from skiplens.base.progress import track


def test_a_closed_door_says_what_to_install():
    with pytest.raises(MissingDependencyError, match=r"no_such.plots is needed for pictures.*pip install 'plots'"):
        optional_import("no_such.plots", "pictures", install="plots")
    assert optional_import("json", "reading").loads("1") == 1


def test_nearest_names_are_offered():
    assert did_you_mean("resnt", ["resnet", "vanilla"]) == "Did you mean resnet?"
    assert did_you_mean("zzz", ["b", "a"]) == "Known names: a, b."
    assert "no names" in did_you_mean("x", [])


def test_progress_counts_every_item():
    seen = []
    assert list(track("abc", "letters", 3, lambda *step: seen.append(step))) == ["a", "b", "c"]
    assert seen == [("letters", done, 3) for done in range(4)]


def test_memory_is_read_from_the_machine():
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert physical / 1000 < free_bytes() <= physical
    assert budget_bytes(asked=5) == 5
    assert budget_bytes() < physical * 0.51


def test_what_does_not_fit_is_refused_with_its_size():
    with pytest.raises(TooLargeError, match=r"A Gram matrix needs 3.0 GiB, but only 1.0 KiB may be used. Use chunks."):
        require_fits(3 * 2**30, "A Gram matrix", "Use chunks.", 1024)
    assert require_fits(10, "A vector", "", 10) is None


def test_bytes_are_readable():
    assert [readable(n) for n in (12, 2048, 5 * 2**20, 2**50)] == ["12 B", "2.0 KiB", "5.0 MiB", "1024.0 TiB"]
