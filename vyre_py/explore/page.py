"""A page: one HTML document with its style, its scripts and its data inside."""

from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from vyre_py.ir.data_classes import dataclass

__all__ = ["VIEWS", "Page", "page_bytes", "page_html", "policy"]

# The views that there are, and the scripts of each, in this folder, where its style is NAME.css.
VIEWS: Final[Mapping[str, tuple[str, ...]]] = {"explore": ("panes.js", "facts.js", "run.js", "explore.js"), "trace": ("trace.js",)}


@dataclass(frozen=True, slots=True)
class Page:
    """What a page shows: `view` is one of `VIEWS`, `data` of JSON's types."""

    title: str
    view: str
    data: Mapping[str, Any]


@lru_cache(maxsize=16)
def _shipped(name: str) -> str:
    return (files("vyre_py.explore") / name).read_text("utf-8")


@lru_cache(maxsize=len(VIEWS))
def _parts(view: str) -> tuple[str, tuple[str, ...]]:
    """The style and the scripts of a view."""
    return _shipped("shell.css") + _shipped(f"{view}.css"), tuple(map(_shipped, ("shell.js", *VIEWS[view])))


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def policy(view: str) -> str:
    """The Content-Security-Policy of a page: its own scripts and style run, by their hashes, and it asks its own server alone."""
    style, scripts = _parts(view)
    rules = {
        "default-src": "'none'", "script-src": " ".join(map(_hash, scripts)), "style-src": _hash(style), "img-src": "data:", "connect-src": "'self'",
        "base-uri": "'none'", "form-action": "'none'",
    }  # fmt: skip
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _json(data: object) -> str:
    """JSON as an element of HTML may hold it: without `<`, with which everything begins that could end the element."""
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")


def page_html(page: Page, *, live: bool = False) -> str:
    """The document. A `live` one has a server to ask, beside it at its address."""
    style, scripts = _parts(page.view)
    holes = {
        "TITLE": html.escape(page.title.replace("\0", "\ufffd")), "POLICY": html.escape(policy(page.view)), "STYLE": style,
        "DATA": _json({"title": page.title, "live": live, "view": page.view, "data": page.data}),
        "SCRIPTS": "".join(f"<script>{script}</script>" for script in scripts),
    }  # fmt: skip
    first, *rest = _shipped("shell.html").split("@@")
    # Every second piece is a hole's name, so nothing that was put in is looked at again.
    return first + "".join(holes[name] if k % 2 == 0 else name for k, name in enumerate(rest))


def page_bytes(page: Page, *, live: bool = False) -> bytes:
    """The document as a file has it, or a server sends it: nothing beside it is needed."""
    return page_html(page, live=live).encode("utf-8", "backslashreplace")
