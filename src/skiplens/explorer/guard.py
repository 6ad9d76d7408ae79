"""Who may ask this server: the same machine, or those who have the token."""

import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

COOKIE_DAYS = 30
_SAME_PAGE = ("", "same-origin", "none")
_LINK_FROM_ELSEWHERE = ("navigate", "/")  # all that another page may send a person to: nothing is downloaded there
UPDATES = "/_dash-update-component"
MOST_BODY_BYTES = 2**20  # of a request; a page with five hundred runs sends a tenth of it


def is_loopback(host: str) -> bool:
    """Whether nothing outside of this machine can reach a server at `host`."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    """192 random bits."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class Visitor:
    """What a request says of who sent it: the Host header, where it comes from, token and cookie; and what it wants."""

    host: str
    site: str = ""
    mode: str = ""
    token: str = ""
    cookie: str = ""
    path: str = ""


@dataclass(frozen=True)
class Guard:
    """Lets requests in or says why not."""

    host: str  # where the server listens
    port: int
    token: str = field(default="", repr=False)  # asked for where other machines can reach it; empty on loopback

    @property
    def cookie_name(self) -> str:
        """Cookies are shared by all servers of a machine, so the name holds the port."""
        return f"skiplens_explorer_{self.port}"

    def refusal(self, visitor: Visitor) -> str:
        """Why the visitor is not let in; empty if it is."""
        if visitor.site not in _SAME_PAGE and (visitor.mode, visitor.path) != _LINK_FROM_ELSEWHERE:
            return "Another web page asked for this; open the explorer itself, or paste the address into a new tab."
        if not self.token:
            # A name that a stranger has pointed at this machine (DNS rebinding) is no name of it.
            is_here = is_loopback(_name_in(visitor.host))
            return "" if is_here else f"The explorer does not answer to the name {visitor.host!r}."
        if self.knows(visitor.token) or self.knows(visitor.cookie):
            return ""
        return "The explorer asks for its token: open the link that skiplens explore has printed."

    def knows(self, word: str) -> bool:
        """Whether it is the token, in a time that does not tell how much of it is right."""
        return bool(self.token) and hmac.compare_digest(word.encode(), self.token.encode())


def _name_in(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_update(body: Any, callbacks: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the body names one of the server's callbacks, and brings for each of its places what the page has there.

    Everything is checked before it is used: what stands in a request may come from anybody.
    """
    if not isinstance(body, dict) or not isinstance(body.get("output"), str):
        return False
    callback, changed = callbacks.get(body["output"], {}), body.get("changedPropIds", [])
    if "callback" not in callback or not isinstance(changed, list) or not all(isinstance(one, str) for one in changed):
        return False
    is_one = not body["output"].startswith("..")
    names = [body["output"]] if is_one else body["output"].strip(".").split("...")
    wanted = [dict(zip(("id", "property"), name.rsplit(".", 1), strict=True)) for name in names]
    outputs = [body.get("outputs")] if is_one else body.get("outputs")
    groups = [(outputs, wanted), *((body.get(group, []), callback[group]) for group in ("inputs", "state"))]
    if not all(
        isinstance(entries, list) and len(entries) == len(places) and all(map(_is_place, entries, places))
        for entries, places in groups
    ):
        return False
    # A pattern stands for the same places wherever it is asked for, and each row has one place for its problem.
    seen: dict[str, Any] = {}
    patterns = ((entry, place) for group in groups for entry, place in zip(*group, strict=True) if type(entry) is list)
    for entry, place in patterns:
        kind = json.loads(place["id"])["kind"].replace("problem", "row")
        names = [(one["id"]["view"], one["id"]["name"]) for one in entry]
        if seen.setdefault(kind, names) != names:
            return False
    return True


def _is_place(entry: Any, wanted: Mapping[str, str]) -> bool:
    """Whether the entry is of this place; a pattern stands for a list of places."""
    if wanted["id"].startswith("{"):
        pattern = json.loads(wanted["id"])
        return isinstance(entry, list) and all(_is_one(one, wanted["property"], pattern) for one in entry)
    return _is_one(entry, wanted["property"], wanted["id"])


def _is_one(entry: Any, wanted_property: str, wanted: str | dict[str, Any]) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("property"), str):
        return False
    place, value = entry.get("id"), entry.get("value")
    if entry["property"].split("@")[0] != wanted_property.split("@")[0]:  # behind it: which of several callbacks
        return False
    if isinstance(wanted, str):
        return place == wanted and _is_said(wanted, value)
    if not isinstance(place, dict) or place.keys() != wanted.keys() or place["kind"] != wanted["kind"]:
        return False
    if not all(isinstance(name, str) for name in place.values()):
        return False
    return value == place if wanted_property == "id" else _is_value(value)


def _is_said(place: str, value: Any) -> bool:
    """Whether the value is one that the page can have at this place."""
    if place == "address":
        return value is None or isinstance(value, str)
    if place not in ("view", "query") or value is None:
        return _is_value(value)
    needed, texts = ({"name", "words"}, "words") if place == "view" else ({"view", "query"}, "")
    words = value.get(texts, value) if isinstance(value, dict) else None
    if not isinstance(words, dict) or not needed <= value.keys():
        return False
    return all(isinstance(word, str) for name, word in words.items() if texts or name in needed)


def _is_value(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(one, str) for one in value)
    return value is None or isinstance(value, str | int | float)
