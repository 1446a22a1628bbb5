"""Pages on 127.0.0.1: one process, an address that nobody can guess, and no way to a file.

Whoever may talk to the server has its token, which is the first part of every path. A page of another site cannot: it does not know the token, its name for
this machine is not in the `Host` that is asked for, its `Origin` is refused, and what is asked for goes as `application/json`, which browsers send to no
other site unasked. Paths name answers in a table; nothing is read from disk for them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from vyre_py.explore.page import Page, page_bytes, policy
from vyre_py.ir.language.errors import VyreError

__all__ = ["MAX_BODY_BYTES", "Answer", "PageServer"]

Answer = Callable[[Any], Any]

MAX_BODY_BYTES: Final = 4 << 20
_TIMEOUT_S: Final = 20.0  # for a request to arrive
_JSON: Final = "application/json"


class PageServer:
    """Serves a page, and answers what it asks: `answers` has a function for each name, from JSON to JSON, which may raise VyreError. Functions are called
    from several threads.

        with PageServer(page, {"document": answer}) as server:
            print(server.address)
            server.serve()

    `page` is asked for at each load, so that a page that is loaded again shows what there is now. Raises OSError where the port is taken.
    """

    def __init__(self, page: Callable[[], Page], answers: Mapping[str, Answer], port: int = 0) -> None:
        self.page, self.answers = page, dict(answers)
        self.token = secrets.token_urlsafe(24)
        self._server = _Http(("127.0.0.1", port), _Requests)
        self._server.owner = self
        self.port: int = self._server.server_port

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def serve(self) -> None:
        """Serves until `stop`, or until the process is interrupted."""
        self._server.serve_forever(poll_interval=0.1)

    def stop(self) -> None:
        """Ends `serve`, which another thread is in."""
        self._server.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = False
    owner: PageServer


class _Requests(BaseHTTPRequestHandler):
    server: _Http
    timeout = _TIMEOUT_S
    server_version, sys_version = "vyre-py", ""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Says nothing: addresses have the token."""

    def do_GET(self) -> None:
        """The page, at its address."""
        if self._wanted() == "":
            page = self.server.owner.page()
            self._reply(200, page_bytes(page, live=True), "text/html; charset=utf-8", policy(page.view))
        else:
            self._refuse(404)

    def do_POST(self) -> None:
        """An answer."""
        answer = self.server.owner.answers.get(self._wanted() or "")
        if answer is None:
            self._refuse(404)
            return
        origin = self.headers.get("Origin")
        if (origin is not None and origin.removeprefix("http://") not in self._hosts()) or self.headers.get_content_type() != _JSON:
            self._refuse(403)
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 10):
            self._refuse(411)
        elif int(length) > MAX_BODY_BYTES:
            self._refuse(413)
        else:
            self._answer(answer, self.rfile.read(int(length)))

    def _answer(self, answer: Answer, body: bytes) -> None:
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            self._refuse(400)
            return
        try:
            status, told = 200, answer(asked)
        except VyreError as error:
            status, told = 422, {"error": str(error)}
        self._reply(status, json.dumps(told).encode(), _JSON)

    def _hosts(self) -> tuple[str, ...]:
        port = self.server.owner.port
        return f"127.0.0.1:{port}", f"localhost:{port}"

    def _wanted(self) -> str | None:
        """What is asked for, behind the token; None where the token, or the name of this machine, is another."""
        path = self.path.encode("latin-1", "replace")
        lead = f"/{self.server.owner.token}/".encode()
        right = compare_digest(path[: len(lead)].ljust(len(lead), b"\0"), lead)
        return path[len(lead) :].decode("latin-1") if right and self.headers.get("Host") in self._hosts() else None

    def _refuse(self, status: int) -> None:
        self._reply(status, b"", "text/plain")

    def _reply(self, status: int, body: bytes, type_: str, rules: str = "default-src 'none'") -> None:
        self.send_response(status)
        headers = {
            "Content-Type": type_, "Content-Length": str(len(body)), "Content-Security-Policy": f"{rules}; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin", "Connection": "close",
        }  # fmt: skip
        for name, value in headers.items():
            self.send_header(name, value)
        with suppress(ConnectionError):  # the browser has left
            self.end_headers()
            self.wfile.write(body)
