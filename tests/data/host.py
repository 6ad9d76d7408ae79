"""A host on the loopback that serves files, honours ranges, and can break off, refuse or mis-serve on demand."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Host:
    """What is served and how; `asked` lists the path and the Range header of each request."""

    files: dict[str, bytes]
    url: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    break_off_after: list[int] = field(default_factory=list)
    honours_ranges: bool = True
    announces: bool = True  # the length
    redirects: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Host]:
    host = Host(files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(host))
    host.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(host: Host) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range") if host.honours_ranges else None
            host.asked.append((self.path, self.headers.get("Range")))
            name = self.path.lstrip("/")
            if name in host.redirects:
                self.send_response(302)
                self.send_header("Location", host.redirects[name])
                self.end_headers()
                return
            content = host.files.get(name)
            if content is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
            if wanted and start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if wanted else 200)
            if host.announces:
                self.send_header("Content-Length", str(len(content) - start))
            for name, value in host.headers.items():
                self.send_header(name, value)
            self.end_headers()
            end = start + host.break_off_after.pop(0) if host.break_off_after else None
            with suppress(ConnectionError):  # who asks may have enough
                self.wfile.write(content[start:end])
            self.close_connection = True

        def log_message(self, *words: object) -> None:
            pass

    return Handler
