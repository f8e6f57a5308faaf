"""An identity provider on this machine, which gives tokens as a test wants."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


@dataclass
class Provider:
    """An identity provider: what it will answer, and what it was asked."""

    port: int = 0
    status: int = 200
    answer: bytes = b""
    location: str = ""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """(path, authorization, body)."""

    @property
    def url(self) -> str:
        """Of its token endpoint."""
        return f"http://127.0.0.1:{self.port}/token"


@contextmanager
def identity_provider() -> Iterator[Provider]:
    """A running one."""
    state = Provider(answer=json.dumps({"access_token": "a.b.c"}).encode())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            state.asked.append((self.path, self.headers["Authorization"], body))
            self.send_response(state.status)
            if state.location:
                self.send_header("Location", state.location)
            self.end_headers()
            self.wfile.write(state.answer)

        def log_message(self, *_: Any) -> None:
            """Not on stderr."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()
