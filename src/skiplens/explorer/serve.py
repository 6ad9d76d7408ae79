"""Serve the explorer on this machine."""

import errno
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.base.optional_imports import optional_import
from skiplens.explorer.guard import Guard, is_loopback, new_token
from skiplens.explorer.views import theory_views
from skiplens.explorer.views.runs import RunsView
from skiplens.explorer.views.runs_folder import RunsFolder

DEFAULT_PORT = 8050
DEFAULT_FOLDER = Path("runs")  # where `skiplens inspect` writes when it is not told otherwise
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # all addresses of this machine, and the one it has for itself
_NEXT_PORTS = 20  # tried when the usual port is taken and none was asked for


@dataclass(frozen=True)
class Explorer:
    """A server that listens; `serve` answers until it is interrupted."""

    server: Any
    guard: Guard

    @property
    def link(self) -> str:
        """What to open in a browser; where a token is needed it is in it."""
        return self._link_to(_EVERYWHERE.get(self.guard.host, self.guard.host))

    @property
    def link_elsewhere(self) -> str:
        """What to open on other machines, by the name of this one; empty unless it listens at all its addresses."""
        return self._link_to(socket.gethostname()) if self.guard.host in _EVERYWHERE else ""

    def serve(self) -> None:
        """Answer requests until this process is interrupted or `close` is called."""
        self.server.serve_forever()

    def close(self) -> None:
        """Stop answering."""
        self.server.shutdown()
        self.server.server_close()

    def _link_to(self, host: str) -> str:
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.guard.port}/{f'?token={self.guard.token}' if self.guard.token else ''}"


def explorer(folder: Path | None = None, host: str = "127.0.0.1", port: int | None = None) -> Explorer:
    """The explorer, listening but not answering yet: at `port`, or at the first free one from 8050 on; 0 is any free.

    Runs are those of `folder`; of `runs` in the present folder if not given, and none where there is no such folder.
    """
    optional_import("dash", "the explorer", "skiplens[explorer]")
    if not host.strip("[] "):
        raise InvalidInputError("--host is empty; leave it out for this machine alone, or give one of its addresses.")
    if port is not None and not 0 <= port < 2**16:
        raise InvalidInputError(f"--port {port} is no port; give a number from 1 to 65535, or 0 for any free one.")
    runs = RunsFolder(folder or DEFAULT_FOLDER) if folder is not None or DEFAULT_FOLDER.is_dir() else None
    usual = range(DEFAULT_PORT, DEFAULT_PORT + _NEXT_PORTS)
    for candidate in usual if port is None else (port,):
        try:
            return _listening(runs, host, candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise InvalidInputError(
                    f"The explorer cannot listen at {host}, port {candidate}: {error.strerror or error}. Leave --host "
                    "out for this machine alone, or give one of its addresses."
                ) from error
            if port is not None:
                raise SkiplensError(
                    f"Port {port} of {host} is in use by another program. Leave --port out for the next free one, or "
                    "name another."
                ) from error
    raise SkiplensError(
        f"The ports {usual.start} to {usual.stop - 1} of {host} are all in use. Name a free one: "
        "skiplens explore --port 9000."
    )


def _listening(runs: RunsFolder | None, host: str, port: int) -> Explorer:
    from werkzeug import serving

    from skiplens.explorer.page.app import make_app

    class Quiet(serving.WSGIRequestHandler):
        """Answers without a line on the terminal for each request."""

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Say nothing: addresses may hold the token."""

    # The socket is made here: werkzeug would end the process where a port is taken.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host.strip("[]"), port), family=family) as listener:
        guard = Guard(host.strip("[]"), listener.getsockname()[1], "" if is_loopback(host) else new_token())
        app = make_app((*theory_views(runs), RunsView(runs)), guard, runs).server
        options: dict[str, Any] = {"threaded": True, "request_handler": Quiet, "fd": listener.fileno()}
        return Explorer(serving.make_server(guard.host, guard.port, app, **options), guard)
