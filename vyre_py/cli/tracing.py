"""The command `trace`: the page of a trace file, served to this machine or written as one file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vyre_py.cli.benching import measured_row, read_report
from vyre_py.cli.exploring import serve
from vyre_py.cli.sources import label_of, read_bytes, write_bytes

if TYPE_CHECKING:
    from vyre_py.explore.page import Page
    from vyre_py.explore.trace_page import Bench

__all__ = ["trace"]


def _roof(file: str) -> Bench:
    """What a report of `bench --json` says. Raises CommandError for one that is none, or has no rates."""
    from vyre_py.explore.trace_page import Bench

    report: dict[str, Any] = read_report(file)
    row = measured_row(report, file)
    return Bench(row.name, row.bytes_per_second, row.operations_per_second, row.intensity, row.rate, float(report["launch_ns"]["median"]))


def trace(arguments: argparse.Namespace) -> int:
    """Serves the page until it is interrupted, or writes it."""
    from vyre_py.explore.page import page_bytes
    from vyre_py.explore.trace_page import trace_page

    roofs = [_roof(file) for file in arguments.beside]

    def page() -> Page:
        return trace_page(read_bytes(arguments.file), label_of(arguments.file), roofs)

    first = page()  # what is wrong with the file is said here
    if arguments.html is not None:
        write_bytes(arguments.html, page_bytes(first))
        return 0
    return serve(page if arguments.file != "-" else lambda: first, {}, arguments)

