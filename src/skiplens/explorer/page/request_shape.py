"""Whether a request is one that the page's own script would send: anything else would fail somewhere inside of Dash."""

from collections.abc import Mapping
from typing import Any

UPDATES = "/_dash-update-component"


def is_update(body: Any, callbacks: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the body names one of the server's callbacks, and brings as many inputs and states as that one takes."""
    if not isinstance(body, dict) or not isinstance(body.get("output"), str):
        return False
    callback = callbacks.get(body["output"], {})
    if "callback" not in callback or not isinstance(body.get("changedPropIds", []), list):
        return False
    return _are_places(body.get("outputs", [])) and all(
        _are_places(body.get(group, [])) and len(body.get(group, [])) == len(callback[group])
        for group in ("inputs", "state")
    )


def _are_places(entries: Any) -> bool:
    """A place has an id and a property; a pattern stands for a list of places."""
    if isinstance(entries, dict):
        return "id" in entries and "property" in entries
    return isinstance(entries, list) and all(map(_are_places, entries))
