"""The command `compile`: Programs to artifacts, ahead of time."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import vyre_py
from vyre_py.cli.output import (
    CommandError,
    complain,
    error_data,
    name_text,
    say,
    say_bytes,
    say_json,
    size_text,
    time_text,
)
from vyre_py.cli.parser import compile_options
from vyre_py.cli.sources import label_of, read_program
from vyre_py.ir.language.errors import ProgramError, VyreError, shown
from vyre_py.ir.language.program import Program
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.stages import Stages

if TYPE_CHECKING:
    from vyre_py.lowering.artifact.artifact import Artifact
    from vyre_py.lowering.artifact.parts import Part

__all__ = ["compile_files", "stages_data"]

_ENDING: Final = ".vyre"
_SEPARATORS: Final = tuple(filter(None, (os.sep, os.altsep)))
_ALWAYS_TOLD: Final = frozenset({"registers", "spill_store_bytes", "spill_load_bytes"})  # of what an assembler says; other figures where they are not 0


def stages_data(stages: Stages) -> list[dict[str, Any]]:
    """Where the time of a compilation went, as JSON."""
    return [{"name": stage.name, "depth": stage.depth, "elapsed_ns": stage.elapsed_ns} for stage in stages]


# ---------------------------------------------------------------- reports


def _part_data(part: Part) -> dict[str, Any]:
    images = [
        {"format": image.format, "size_bytes": len(image.code) + len(image.data), "resources": step.takes(image)}
        for step in part.steps for image in step.images
    ]  # fmt: skip
    return {
        "target": part.target.name, "numerics": part.numerics, "workgroup_bytes": sum(step.workgroup_bytes for step in part.steps),
        "images": images, "report": dict(part.report), "stages": stages_data(part.stages), "elapsed_ns": part.stages.total_ns,
    }  # fmt: skip


def _report(file: str, out: Path | None, artifact: Artifact) -> dict[str, Any]:
    size_bytes = out.stat().st_size if out is not None and out.is_file() else len(artifact.to_bytes())
    return {
        "file": label_of(file), "artifact": str(out), "size_bytes": size_bytes, "program": artifact.interface.name,
        "code_digest": artifact.code_digest.hex(), "parts": list(map(_part_data, artifact.parts)), "error": None,
    }  # fmt: skip


def _say_report(report: dict[str, Any]) -> None:
    """A line for the artifact, and lines for each target: its code, what the assembler says of it, and the time by stage."""
    say(f"{report['artifact']}: program {name_text(report['program'])}, {size_text(report['size_bytes'])}")
    for part in report["parts"]:
        code = ", ".join(f"{image['format']} {size_text(image['size_bytes'])}" for image in part["images"])
        stages = ", ".join(f"{stage['name']} {time_text(stage['elapsed_ns'])}" for stage in part["stages"] if stage["depth"] == 0)
        say(f"  {part['target']:14s} {code}; {part['numerics']}; {stages}")
        for image in part["images"]:
            for symbol, figures in image["resources"].items():
                told = [f"{name.replace('_', ' ')} {value}" for name, value in figures.items() if value or name in _ALWAYS_TOLD]
                say(f"    {name_text(symbol)}: {', '.join(told)}")


def _failure(file: str, error: VyreError) -> dict[str, Any]:
    """Says why a file gave no artifact. What a rule says has its own place; other errors get the file's name."""
    findings = error.diagnostics if isinstance(error, ProgramError) else ()
    placed = isinstance(error, CommandError) or (findings and all(d.place is not None for d in findings))
    said = "\n".join(map(str, findings)) or str(error)
    complain(said if placed else f"{label_of(file)}: {said}")
    return {"file": label_of(file), "artifact": None, "error": error_data(error, label_of(file))}


# ---------------------------------------------------------------- work


def _outs(arguments: argparse.Namespace) -> list[Path | None]:
    """Where each artifact goes, None being standard output. Ends the process for names that do not say, or that name what is read."""
    files, out = arguments.files, arguments.out
    if files.count("-") > 1:
        arguments.refuse("standard input can be read once only")
    if out == "":
        arguments.refuse("-o needs a name")
    if out == "-":
        if len(files) > 1 or arguments.json:
            arguments.refuse("standard output takes one artifact and nothing else: name a folder for several with -o, and leave --json out")
        return [None]
    is_folder = out is not None and (Path(out).is_dir() or out.endswith(_SEPARATORS))
    if len(files) == 1 and out is not None and not is_folder:
        return [_apart(arguments, Path(out))]
    if "-" in files and out is None:
        arguments.refuse("a Program from standard input needs -o, since it has no name")
    if out is not None and not is_folder and (Path(out).exists() or Path(out).suffix == _ENDING):
        arguments.refuse(f"an artifact holds one Program: for {len(files)} of them -o names a folder, and {shown(out)} is not a folder")
    folder = Path() if out is None else Path(out)
    outs = [folder / f"{'stdin' if file == '-' else Path(file).stem}{_ENDING}" for file in files]
    for number, made in enumerate(outs):
        if (first := outs.index(made)) != number:
            pair = f"{label_of(files[first])} and {label_of(files[number])}"
            arguments.refuse(f"{pair} would both become {shown(str(made))}; compile them apart, each with -o")
    return [*outs] if out is None else [_apart(arguments, made) for made in outs]


def _apart(arguments: argparse.Namespace, out: Path) -> Path:
    """A name for an artifact. Ends the process for one of a Program that is to be read."""
    for file in arguments.files:
        with suppress(OSError, ValueError):  # what is not there is no other file's name
            if file != "-" and out.is_file() and out.samefile(file):
                arguments.refuse(f"{shown(str(out))} is the Program itself; name another file with -o")
    return out


def _read(file: str) -> Program | VyreError:
    try:
        return read_program(file)
    except VyreError as error:
        return error


def _compiled(programs: Sequence[Program], targets: list[str], options: CompileOptions, workers: int | None) -> Sequence[Artifact | VyreError]:
    """An artifact for each Program, or the error."""
    if len(programs) != 1:
        return vyre_py.compile_many(programs, targets, options, workers=workers, errors="return")
    try:
        return [vyre_py.compile_native(programs[0], targets, options)]
    except VyreError as error:
        return [error]


def _saved(file: str, out: Path | None, artifact: Artifact) -> dict[str, Any]:
    """Writes an artifact, and its folder if it is missing; returns the report. Raises CommandError, ArtifactError."""
    if out is None:
        say_bytes(artifact.to_bytes())
    else:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise CommandError(f"{out.parent}: {error}") from error
        artifact.save(out)
    return _report(file, out, artifact)


def compile_files(arguments: argparse.Namespace) -> int:
    """Compiles each file for all targets, and writes an artifact for it; those that fail hold up no other."""
    outs, options = _outs(arguments), compile_options(arguments)
    read = [_read(file) for file in arguments.files]
    made = iter(_compiled([program for program in read if isinstance(program, Program)], arguments.targets, options, arguments.workers))
    outcomes = [next(made) if isinstance(found, Program) else found for found in read]
    reports = []
    for file, out, outcome in zip(arguments.files, outs, outcomes, strict=True):
        try:
            reports.append(_failure(file, outcome) if isinstance(outcome, VyreError) else _saved(file, out, outcome))
        except VyreError as error:
            reports.append(_failure(file, error))
    if arguments.json:
        say_json({"artifacts": reports})
    else:
        for report in reports:
            if report["error"] is None and outs != [None]:
                _say_report(report)
    return int(any(report["error"] is not None for report in reports))
