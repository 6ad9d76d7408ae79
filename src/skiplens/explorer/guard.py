"""Who may ask this server: the same machine, or those who have the token."""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

COOKIE_DAYS = 30
_SAME_PAGE = ("", "same-origin", "none")
_LINK_FROM_ELSEWHERE = ("navigate", "/")  # all that another page may send a person to: nothing is downloaded there


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
