"""Offer the nearest known names when a name is unknown."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that offers the names nearest to `name`, or lists them all when none is near."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"Known names: {', '.join(known)}." if known else "There are no names to choose from."
