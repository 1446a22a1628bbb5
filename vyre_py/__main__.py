"""The command line: `vyre-py` and `python -m vyre_py`.

Exit status: 0 done, 1 the work failed (the message says why), 2 the command line was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import vyre_py
from vyre_py.cli import complain, machines, programs, tables
from vyre_py.ir.errors import VyreError

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vyre-py", description="A kernel compiler and driver for Python.")
    parser.add_argument("--version", action="version", version=f"vyre-py {vyre_py.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)

    demo = commands.add_parser("demo", help="equalise and sharpen a photograph on the best device")
    demo.add_argument("--device", default=None, help="cuda, wgpu, cpu or reference, with an ordinal if wanted (cuda:0)")
    demo.add_argument("--picture", default=None, help="a picture of your own (PNG or JPEG)")
    demo.add_argument("--out", default="vyre-demo.png", help="where the result goes (default %(default)s)")
    demo.set_defaults(run=machines.demo)

    devices = commands.add_parser("devices", help="which devices are here")
    devices.set_defaults(run=machines.devices)

    check = commands.add_parser("check", help="every finding about Programs in .vir files")
    check.add_argument("files", nargs="+", metavar="FILE", help="a .vir file; - is standard input")
    check.set_defaults(run=programs.check)

    lower = commands.add_parser("lower", help="print what a target emits for a Program")
    lower.add_argument("file", metavar="FILE", help="a .vir file; - is standard input")
    forms = "vir (the Program as it reaches the target's emitter), llvm, ptx, wgsl or asm (of the host)"
    lower.add_argument("--emit", default=None, metavar="FORM", choices=programs.FORMS, help=forms)
    lower.add_argument("--target", default=None, help="sm_90 (70 and newer), wgsl, cpu, cpu:NAME:LANES or reference; --emit alone means one that has the form")
    lower.add_argument("--opt", type=int, default=None, metavar="N", help="how hard to optimise: 0 (not at all) to 3 (default)")
    lower.set_defaults(run=programs.lower, refuse=lower.error)

    explain = commands.add_parser("explain", help="what a finding's code means, and what helps")
    explain.add_argument("code", metavar="CODE", help="as findings begin: V201")
    explain.set_defaults(run=tables.explain)

    ops = commands.add_parser("ops", help="the ops of the language")
    ops.add_argument("name", nargs="?", metavar="NAME", help="one op, by its name or operator")
    ops.set_defaults(run=tables.ops)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit status."""
    arguments: Any = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except VyreError as error:
        return complain(str(error))
    except BrokenPipeError:
        # Whoever reads the output, such as `head`, has seen enough; Python's own flush at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
