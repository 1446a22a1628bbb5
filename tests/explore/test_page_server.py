"""Pages and their server: what is inside, who is let in, and that untrusted text stays text."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest
from browser import HOSTILE

from vyre_py.explore.page import VIEWS, Page, page_bytes, page_html, policy
from vyre_py.explore.server import MAX_BODY_BYTES, PageServer
from vyre_py.ir.language.errors import VyreError

VIEW = "explore"


class Reader(HTMLParser):
    """The elements of a document, and the text of each script and style, by another reader than a browser's."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, dict[str, str | None], str]] = []
        self.title = ""
        self.open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open = tag
        if tag in ("script", "style"):
            self.texts.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open in ("script", "style"):
            tag, attributes, text = self.texts[-1]
            self.texts[-1] = tag, attributes, text + data
        if self.open == "title":
            self.title += data


def page(data: Any = None) -> Page:
    return Page("a title", VIEW, {} if data is None else data)


@pytest.mark.parametrize("view", VIEWS)
def test_a_page_holds_all_that_it_needs_and_asks_for_nothing_else(view: str) -> None:
    read = Reader(page_html(Page("t", view, {"x": [1, 2]})))
    assert not [attributes for tag, attributes in read.tags if tag in ("script", "img", "iframe", "object") and "src" in attributes]
    links = [attributes["href"] for tag, attributes in read.tags if tag == "link"]
    assert links == ["data:,"]
    assert all("url(" not in text and "@import" not in text for tag, _, text in read.texts if tag == "style")
    (rules,) = [attributes["content"] for tag, attributes in read.tags if attributes.get("http-equiv") == "Content-Security-Policy"]
    assert rules == policy(view)
    inside = [f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}" for tag, given, text in read.texts if "type" not in given]
    assert sorted(inside) == sorted(re.findall(r"sha256-[^']+", policy(view)))
    assert "unsafe" not in policy(view)
    assert policy(view).startswith("default-src 'none'")


def test_what_a_page_shows_cannot_leave_its_data() -> None:
    read = Reader(page_html(Page(HOSTILE, VIEW, {HOSTILE: [HOSTILE]})))
    assert [tag for tag, _ in read.tags if tag in ("script", "img")] == ["script"] * (2 + len(VIEWS[VIEW]))
    (data,) = [text for _, given, text in read.texts if given.get("type") == "application/json"]
    assert json.loads(data) == {"title": HOSTILE, "live": False, "view": VIEW, "data": {HOSTILE: [HOSTILE]}}
    assert read.title == HOSTILE.replace("\0", "\ufffd")


def test_a_page_has_bytes_whatever_it_shows() -> None:
    assert page_bytes(page({"k": "\u00e4\ud800"})).decode("utf-8") == page_html(page({"k": "\u00e4\ud800"}))


# ---------------------------------------------------------------- the server


def refuse(_: Any) -> Any:
    raise VyreError("a reason")


@pytest.fixture
def server() -> Iterator[PageServer]:
    answers = {"double": lambda asked: {"twice": 2 * asked}, "refuse": refuse}
    with PageServer(lambda: page({"name": HOSTILE}), answers) as made:
        thread = threading.Thread(target=made.serve)
        thread.start()
        yield made
        made.stop()
        thread.join()


def ask(server: PageServer, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    sent = {"Content-Type": "application/json"} if method == "POST" else {}
    connection.request(method, path, body, {**sent, **{name.replace("_", "-"): value for name, value in headers.items()}})
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers


def test_the_page_and_its_answers_are_behind_the_token(server: PageServer) -> None:
    home = f"/{server.token}/"
    assert server.address == f"http://127.0.0.1:{server.port}{home}"
    status, body, headers = ask(server, "GET", home)
    assert status == 200
    assert body == page_html(page({"name": HOSTILE}), live=True).encode()
    assert headers["Content-Security-Policy"] == policy(VIEW) + "; frame-ancestors 'none'"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert ask(server, "POST", f"{home}double", b"21")[:2] == (200, b'{"twice": 42}')
    assert ask(server, "POST", f"{home}refuse", b"1")[:2] == (422, b'{"error": "a reason"}')


@pytest.mark.parametrize("path", [
    "/", "", "/wrong/", "{token}", "/{token}", "/{short}/", "/{token}x/", "/{token}/../etc/passwd", "/{token}//etc/passwd", "/{token}/shell.js",
    "/{token}/%2e%2e/setup.py", "/{token}/?x", "/{token}/double", "http://127.0.0.1/{token}/", "/{token}\u00e9/",
])  # fmt: skip
def test_no_other_path_gives_anything(server: PageServer, path: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        wanted = path.format(token=server.token, short=server.token[:-1])
        connection.sendall(f"GET {wanted} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n".encode("latin-1"))
        told = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert b" 200 " not in told
    assert server.token.encode() not in told
    assert b"a title" not in told


def test_other_names_of_this_machine_and_other_sites_are_refused(server: PageServer) -> None:
    home = f"/{server.token}/"
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", f"127.0.0.1:{server.port + 1}", ""):
        assert ask(server, "GET", home, Host=host)[0] == 404
        assert ask(server, "POST", f"{home}double", b"1", Host=host)[0] == 404
    assert ask(server, "GET", home, Host=f"localhost:{server.port}")[0] == 200
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{server.port}"):
        assert ask(server, "POST", f"{home}double", b"1", Origin=origin)[0] == 403
    assert ask(server, "POST", f"{home}double", b"1", Origin=f"http://127.0.0.1:{server.port}")[0] == 200
    assert ask(server, "POST", f"{home}double", b"1", Content_Type="text/plain")[0] == 403


def test_what_is_no_request_is_refused(server: PageServer) -> None:
    home = f"/{server.token}/"
    assert ask(server, "POST", f"{home}double", b"{")[0] == 400
    assert ask(server, "POST", f"{home}double", b"[" * 200_000)[0] == 400
    assert ask(server, "POST", f"{home}double", b"\xff")[0] == 400
    assert ask(server, "POST", f"{home}missing", b"1")[0] == 404
    assert ask(server, "POST", f"{home}double", b"", Content_Length=str(MAX_BODY_BYTES + 1))[0] == 413
    assert ask(server, "POST", f"{home}double", b"1", Content_Length="-1")[0] == 411
    assert ask(server, "PUT", f"{home}double", b"1")[0] == 501
    assert ask(server, "POST", f"{home}double", b"3")[:2] == (200, b'{"twice": 6}')


def test_it_listens_on_this_machine_alone(server: PageServer) -> None:
    assert server._server.server_address[0] == "127.0.0.1"
    with PageServer(page, {}) as other:
        assert other.token != server.token
        assert len(other.token) >= 32
    with pytest.raises(OSError, match="in use"):
        PageServer(page, {}, server.port)
