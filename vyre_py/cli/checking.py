"""Commands about one Program at a time: `check`, `lower`."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from vyre_py.cli.beside import side_by_side
from vyre_py.cli.output import CommandError, complain, finding_data, name_text, say, say_bytes, say_json
from vyre_py.cli.parser import compile_options, other_options
from vyre_py.cli.sources import label_of, read_code, read_program, write_bytes
from vyre_py.ir.language.errors import Diagnostic, ProgramError
from vyre_py.ir.language.program import Program
from vyre_py.lowering.errors import ArtifactError
from vyre_py.lowering.options import CompileOptions

__all__ = ["check", "lower"]

# Form -> the target that is meant where none is named.
_TARGETS: Final = {
    "vir": "reference", "llvm": "cpu", "nvvm": "compute_90", "ptx": "compute_90", "cubin": "sm_90", "sass": "sm_90", "wgsl": "wgsl", "asm": "cpu",
}  # fmt: skip


# ---------------------------------------------------------------- check


def _say_finding(diagnostic: Diagnostic, label: str, where: object, *, colour: str = "red") -> None:
    text = str(diagnostic)
    if diagnostic.place is None:  # bytes and JSON have no lines
        at = "" if where is None else f", at {'byte ' if isinstance(where, int) else ''}{where}"
        head, *more = text.split("\n")
        text = "\n".join([head, f"  {label}{at}", *more])
    say(text.removeprefix(diagnostic.code), lead=diagnostic.code, colour=colour)


def _checked(name: str) -> dict[str, Any]:
    """One file as JSON: whether it is valid, its Program's name, of compiled code the targets, its findings or why it could not be read."""
    from vyre_py.ir.check import check as checked

    label = label_of(name)
    report: dict[str, Any] = {"file": label, "valid": False, "program": None, "targets": None, "diagnostics": [], "warnings": [], "error": None}
    try:
        code = read_code(name)
        if isinstance(code, Program):
            known = checked(code)
            report |= {"program": known.program.name, "valid": True, "warnings": [(d, label, None) for d in known.warnings]}
        else:
            report |= {"program": code.interface.name, "targets": list(code.targets), "valid": True}
    except ProgramError as error:
        report["diagnostics"] = [(d, label, getattr(error, "where", None)) for d in error.diagnostics]
    except CommandError as error:
        report["error"] = str(error)
    except ArtifactError as error:
        report["error"] = f"{label}: {error}"
    return report


def check(arguments: argparse.Namespace) -> int:
    """Every finding and warning about each file, and which files are valid."""
    reports = []
    for name in arguments.files:
        report = _checked(name)
        reports.append(report)
        if arguments.json:
            for kind in ("diagnostics", "warnings"):
                report[kind] = [finding_data(*finding) for finding in report[kind]]
            continue
        for finding in report["diagnostics"]:
            _say_finding(*finding)
        for warning in report["warnings"]:
            _say_finding(*warning, colour="yellow")
        if report["error"]:
            complain(report["error"])
        elif report["targets"] is not None:
            say(f"{label_of(name)}: compiled code of program {name_text(report['program'])} for {', '.join(report['targets'])} is whole")
        elif report["valid"]:
            say(f"{label_of(name)}: program {name_text(report['program'])} is valid")
    if arguments.json:
        say_json({"valid": all(report["valid"] for report in reports), "files": reports})
    return int(not all(report["valid"] for report in reports))


# ---------------------------------------------------------------- lower


def _cubin(program: Program, target: str, options: CompileOptions) -> bytes:
    """The machine code of a Program for an NVIDIA GPU. Raises what compiling raises, CommandError for a target that has none."""
    from vyre_py.lowering.compile import compile_for
    from vyre_py.lowering.target import parse_target

    (part,) = compile_for(program, [parse_target(target)], options).parts
    (step,) = part.steps
    if (image := step.image("cubin")) is None:
        raise CommandError(f"target {target} gives no machine code of an NVIDIA GPU; sm_90 and its like do")
    return image.code


def _sass(program: Program, target: str, options: CompileOptions) -> str:
    from vyre_py.lowering.llvm.gpu.machine_code.disassemble import disassemble

    return disassemble(_cubin(program, target, options), lines=options.debug)


def _text(form: str | None) -> Callable[[Program, str, CompileOptions], str]:
    def emit(program: Program, target: str, options: CompileOptions) -> str:
        from vyre_py.lowering.compile import emit_text

        return emit_text(program, target, options, form)

    return emit


# Forms that are made of more than the text which a target emits.
_MAKERS: Final[Mapping[str, Callable[[Program, str, CompileOptions], str | bytes]]] = {"cubin": _cubin, "sass": _sass}


def _made(program: Program, arguments: argparse.Namespace) -> str | bytes:
    form = arguments.emit
    return _MAKERS.get(form, _text(form))(program, arguments.target or _TARGETS[form], compile_options(arguments))


_MARKS: Final = {" ": "", "|": "yellow", "<": "red", ">": "green"}


def _lower_both(program: Program, arguments: argparse.Namespace) -> int:
    """Two forms side by side, in the columns of the terminal; in a file, and where there is no terminal, in 160."""
    other = other_options(arguments.diff, arguments)
    left, right = _made(program, arguments), _made(program, other)
    if isinstance(left, bytes) or isinstance(right, bytes):
        raise CommandError("a cubin is no text to be compared: --emit sass is")
    titles = ("as given", " ".join(f"--{word}" for word in arguments.diff))
    wide = arguments.out is not None or sys.stdout is None or not sys.stdout.isatty()
    rows = side_by_side(left, right, titles, 160 if wide else shutil.get_terminal_size().columns)
    if arguments.out is not None:
        write_bytes(arguments.out, "".join(f"{mark}{line}\n" for mark, line in rows).encode())
    else:
        for mark, line in rows:
            say(line, lead=mark, colour=_MARKS[mark])
    return 0


def lower(arguments: argparse.Namespace) -> int:
    """What a target emits for the Program in a file, or another form of it."""
    form = arguments.emit
    if form is None and arguments.target is None:
        arguments.refuse("one of --emit and --target is needed")
    if form == "cubin" and arguments.out is None and sys.stdout is not None and sys.stdout.isatty():
        arguments.refuse("a cubin is not text: name a file for it with -o, or redirect it")
    program = read_program(arguments.file)
    if arguments.diff is not None:
        return _lower_both(program, arguments)
    made = _made(program, arguments)
    text = made if isinstance(made, bytes) or made.endswith("\n") else made + "\n"
    if arguments.out is not None:
        write_bytes(arguments.out, text if isinstance(text, bytes) else text.encode())
    elif isinstance(text, bytes):
        say_bytes(text)
    else:
        say(text, end="")
    return 0
