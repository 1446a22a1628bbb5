"""The command `explore`: a Program's page, served to this machine or written as one file."""

from __future__ import annotations

import argparse
import webbrowser
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from vyre_py.cli.output import CommandError, flush, say
from vyre_py.cli.parser import compile_options
from vyre_py.cli.sources import write_bytes
from vyre_py.ir.language.errors import shown

if TYPE_CHECKING:
    from vyre_py.explore.page import Page
    from vyre_py.explore.server import Answer

__all__ = ["explore", "serve"]


def explore(arguments: argparse.Namespace) -> int:
    """Serves the page until it is interrupted, or writes it."""
    from vyre_py.explore.document import TARGETS, Known
    from vyre_py.explore.page import page_bytes
    from vyre_py.explore.pages import answers_of, explore_page
    from vyre_py.explore.subject import read_again, subjects_of
    from vyre_py.lowering.target import parse_target

    targets = tuple(dict.fromkeys(parse_target(name).name for name in arguments.targets or TARGETS))
    known = Known(options=compile_options(arguments), targets=targets)
    given = _given(arguments)
    subjects = subjects_of(arguments.file)
    for subject in subjects:
        if subject.told:
            say(subject.told)
            break
    if arguments.html is not None:
        write_bytes(arguments.html, page_bytes(explore_page(subjects, known, given, whole=True)))
        return 0
    loads = 0

    def page() -> Page:
        """At each further load what the file holds then."""
        nonlocal loads
        loads += 1
        if loads > 1 and arguments.file != "-":
            read_again(subjects, arguments.file)
        return explore_page(subjects, known, given)

    return serve(page, answers_of(subjects, known), arguments)


def _given(arguments: argparse.Namespace) -> dict[str, str]:
    """The arguments of a run as text by name."""
    found: dict[str, str] = {}
    for word in arguments.arguments:
        if word.name is None or word.text.startswith("@"):
            arguments.refuse("a run to step through takes numbers, not files")
        if word.name in found:
            arguments.refuse(f"{shown(word.name)} is given twice")
        found[word.name] = word.text
    return found


def serve(page: Callable[[], Page], answers: Mapping[str, Answer], arguments: argparse.Namespace) -> int:
    """Serves a page, and says where, until the process is interrupted. Raises CommandError for a port that is taken."""
    from vyre_py.explore.server import PageServer

    try:
        server = PageServer(page, answers, arguments.port)
    except OSError as error:
        raise CommandError(f"port {arguments.port}: {error.strerror or error}") from error
    with server:
        say(server.address)
        flush()
        if arguments.open:
            webbrowser.open(server.address)
        server.serve()
    return 0
