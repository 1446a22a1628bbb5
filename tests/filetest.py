"""Filetests: `.vir` files whose comments say what is expected. One runner for the checker, the passes, every device and every target.

A file holds Programs, each beginning with `program` at the start of a line; what follows a Program belongs to it, what stands before
the first to all. A directive is a comment `// word: text`; a line that goes on after it begins with `//` and three spaces.

    check/   // error: V201 words      on the line of the finding, or alone on the line before; a Program without any is valid
             // warning: V471 words    alike, for what is valid
             // ---- example           what ir/ERRORS.md shows follows: a Program that breaks the rule, then `// ---- mended` and the same made valid;
                 rules that text cannot break have CODE.py.txt instead, with two pieces of Python
    run/     // run: x = [1, 2] a = 2.0 n = 4 ==> y = [3, 4]
                 literals as in the language, typed by the declarations; nested lists for more axes, and for the components of vectors;
                 zeros(2, 3), iota(5), fill(7, 5); floats compare by bits, all NaNs alike
             // devices: reference cpu cuda     only these
             // not on wgpu: why
             // unsupported on wgpu: words      compiling must raise Unsupported with these words
             // needs on wgpu: words            compiling may do so, where the device is one that lacks it
             // printed: text                   behind a run: the lines that it prints, in order
             // fails: words                    behind a run: it raises KernelAssertion with these words, and the rest comes out all the same
             // tolerance: ulp 2                for floats, everywhere; on one kind of device: // tolerance on wgpu: ulp 4 abs 0.001
                 finite results only are compared there, subnormals count as zero: WGSL may assume that there are no others
                 those whose expected values are computed are no files: `write_filetests.py` writes their text when tests are collected
    races/   // run: ...             as in run/, on the reference device, which watches for races; nothing is expected of Programs that have one:
             // races: R101 words       in the finding about it, with its places and help
    unwritten/  // unwritten: R102 words    alike, of Programs that read what nothing has written, which the reference device watches for there
    passes/  // pass: fold              then the Program, `// ---- becomes`, and the Program that comes out
    lower/   // lower: sm_90            a target's name, and numerics and options if need be: sm_90 fast persistent; then, for the text that it emits:
             // contains: text          in this order
             // lacks: text             nowhere
             // golden                  the whole text is tests/golden/FILE.PROGRAM.TARGET.txt

VYRE_UPDATE=1 in the environment rewrites what comes out of passes, and goldens. VYRE_WRITTEN_FILETESTS is a folder of those that are written (`write_out`), for
processes that should not write them again.

One module because the folders share their directives, and each is a few lines.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
from filetest_arguments import Arguments
from tree import TESTS

from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.errors import KernelAssertion
from vyre_py.ir.check import check
from vyre_py.ir.language.errors import Diagnostic, ProgramError, RaceError, UnwrittenRead
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import RULES
from vyre_py.ir.language.types import decode, scalar_of
from vyre_py.ir.passes import PASSES, annotate, optimise
from vyre_py.ir.text.parser import parse
from vyre_py.ir.text.printer import print_program
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.options import CompileOptions

__all__ = [
    "UPDATE", "WATCHING", "WRITTEN", "Case", "Failure", "devices_of", "expected_after", "files", "read_cases", "rewrite_passes", "run_check", "run_lower",
    "run_on", "run_pass", "run_program", "run_watched", "text_of", "write_out",
]  # fmt: skip

ROOT: Final = TESTS / "filetests"
GOLDEN: Final = TESTS / "golden"
UPDATE: Final = os.environ.get("VYRE_UPDATE", "") not in ("", "0")
WRITTEN: Final = "VYRE_WRITTEN_FILETESTS"

_WORDS: Final = r"error|warning|run|devices|(?:not|unsupported|needs) on \w+|tolerance(?: on \w+)?|pass|lower|contains|lacks|races|unwritten|printed|fails"
_DIRECTIVE: Final = re.compile(rf"//[ ]?({_WORDS}):[ \t]*(.*)|//[ ]?(golden)[ \t]*$")
_MISTAKEN: Final = re.compile(r"//[ ]?([a-z][a-z ]*):")
_BECOMES: Final = "// ---- becomes"
# The interpreter runs Programs as they are written and as the passes leave them: a pass that changes a meaning shows at once.
_LEVELS: Final = {"reference": (0, 3)}

WATCHING: Final = DispatchConfig(races=True)
# What a folder's Programs are watched for, by the word that says what is found: how they run, what is raised, and its name.
_WATCHES: Final[Mapping[str, tuple[DispatchConfig, type[ProgramError], str]]] = {
    "races": (WATCHING, RaceError, "race"),
    "unwritten": (DispatchConfig(unwritten=True), UnwrittenRead, "unwritten read"),
}

_NUMERICS: Final = ("strict", "fast", "native")

Array = np.ndarray[Any, np.dtype[Any]]


class Failure(AssertionError):
    """A filetest that does not hold, or is written wrongly: file, line, and why."""


@dataclass
class Directive:
    """`// word: text` on a line; `alone` when nothing else stands there."""

    line: int
    word: str
    text: str
    alone: bool


@dataclass
class Case:
    """One Program of a file: its text, padded with empty lines so that places are the file's own, and its directives."""

    path: Path
    text: str
    line: int
    directives: list[Directive]
    common: list[Directive] = field(default_factory=list)

    def all(self, word: str) -> list[Directive]:
        """The directives of this word, the file's own first."""
        return [d for d in (*self.common, *self.directives) if d.word == word]

    def parse(self) -> Program:
        """The Program."""
        return parse(self.text, self.path.name)

    def fail(self, line: int, why: str) -> NoReturn:
        """Raises Failure for a line of the file."""
        raise Failure(f"{self.path.name}:{line}: {why}")


def files(folder: str) -> list[Path]:
    """The filetests of a folder; in `run/` those as well that are written when they are asked for, under the paths that they would have."""
    return sorted([*(ROOT / folder).glob("*.vir"), *(_written() if folder == "run" else ())])


@cache
def _written() -> dict[Path, Callable[[], str]]:
    if folder := os.environ.get(WRITTEN):
        return {ROOT / "run" / path.name: partial(path.read_text, encoding="utf-8") for path in Path(folder).glob("*.vir")}
    from write_filetests import (
        FILES,  # what computes expected values needs mpmath, and most who read filetests need none
    )

    made = {ROOT / "run" / f"{name}.vir": cache(make) for name, make in FILES.items()}
    assert not [path for path in made if path.exists()], "a file has the name of one that is written"
    return made


def text_of(path: Path) -> str:
    """What a filetest says."""
    return path.read_text(encoding="utf-8") if path.exists() else _written()[path]()


def write_out(folder: Path) -> None:
    """Writes those that are written into a folder, as files."""
    for path, make in _written().items():
        (folder / path.name).write_text(make(), encoding="utf-8")


def read_cases(path: Path) -> list[Case]:
    """The Programs of a file, with their directives."""
    lines = text_of(path).split("\n")
    starts = [k for k, line in enumerate(lines) if re.match(r"program\b", line) and not _after_becomes(lines, k)]
    firsts = [_first_line(lines, start) for start in starts]
    common = _directives(path, lines, 0, firsts[0] if firsts else len(lines))
    cases = []
    for first, start, end in zip(firsts, starts, [*firsts[1:], len(lines)], strict=True):
        text = "\n" * first + "\n".join(lines[first:end])
        cases.append(Case(path, text, start + 1, _directives(path, lines, first, end), common))
    if not cases:
        raise Failure(f"{path.name}: no program")
    return cases


def _first_line(lines: list[str], start: int) -> int:
    """Where a Program's directives begin: those that say what is done to it stand before it."""
    while start and re.match(r"// (pass|lower):", lines[start - 1]):
        start -= 1
    return start


def _after_becomes(lines: list[str], index: int) -> bool:
    return any(line.startswith(_BECOMES) for line in lines[max(0, index - 2) : index])


def _directives(path: Path, lines: list[str], start: int, end: int) -> list[Directive]:
    made: list[Directive] = []
    for index in range(start, end):
        line = lines[index]
        found = _DIRECTIVE.search(line)
        if found:
            made.append(Directive(index + 1, found[1] or found[3], (found[2] or "").strip(), not line[: found.start()].strip()))
        elif re.match(r"//   ", line) and made:
            made[-1].text += " " + line[2:].strip()
        elif mistaken := _MISTAKEN.match(line):
            raise Failure(f"{path.name}:{index + 1}: no directive is named {mistaken[1]!r}")
    return made


# ---------------------------------------------------------------- check


def run_check(case: Case) -> None:
    """Compares the findings about a Program with those that its comments expect. Raises Failure."""
    found: list[Diagnostic] = []
    try:
        found = list(check(case.parse()).warnings)
    except ProgramError as error:
        found = list(error.diagnostics)
    lines = case.text.split("\n")
    expected = [(d, _meant_line(lines, d)) for d in case.directives if d.word in ("error", "warning")]
    for diagnostic in found:
        line = diagnostic.place.line if diagnostic.place is not None else case.line
        match = next((e for e in expected if e[1] == line and _fits(e[0], diagnostic)), None)
        if match is None:
            case.fail(line, f"not expected:\n{diagnostic}")
        expected.remove(match)
    for directive, line in expected:
        case.fail(line, f"expected, but not found: {directive.text}")


def _meant_line(lines: list[str], directive: Directive) -> int:
    line = directive.line
    while directive.alone and line < len(lines) and re.match(r"\s*//", lines[line - 1]):
        line += 1
    return line


def _fits(directive: Directive, diagnostic: Diagnostic) -> bool:
    code, _, words = directive.text.partition(" ")
    # Its own words: printed, it quotes the line, and on that the directive.
    said = f"{diagnostic.message} {diagnostic.help or ''}"
    return code == diagnostic.code and RULES[code].warning == (directive.word == "warning") and words.strip() in said


# ---------------------------------------------------------------- run


def run_on(
    device: str, program: Program, arguments: Mapping[str, Any], opt: int = 3, config: DispatchConfig | None = None, out: Mapping[str, Array] | None = None,
) -> dict[str, Array]:  # fmt: skip
    """Compiles and runs a Program on the device of this kind; gives the written buffers, some of which go to `out`."""
    from device_kinds import open_device

    result: dict[str, Array] = open_device(device).compile_native(program, CompileOptions(opt=opt)).dispatch(arguments, config=config, out=out)
    return result


def devices_of(path: Path, kinds: tuple[str, ...]) -> list[str]:
    """The kinds of device that a file of `run/` is for."""
    common = read_cases(path)[0].common
    only = [kind for d in common if d.word == "devices" for kind in d.text.split()]
    never = [d.word.removeprefix("not on ") for d in common if d.word.startswith("not on ")]
    return [kind for kind in kinds if kind not in never and (not only or kind in only)]


def run_program(case: Case, device: str, config: DispatchConfig | None = None) -> None:
    """Runs a Program's cases on a device and compares bits. Raises Failure with all that differ."""
    program = case.parse()
    runs = case.all("run")
    if not runs:
        case.fail(case.line, "no run directive follows this Program")
    if case.all(f"not on {device}") or any(device not in d.text.split() for d in case.all("devices")):
        return
    unsupported = case.all(f"unsupported on {device}")
    problems: list[str] = []
    for directive in runs:
        given, arrow, wanted = directive.text.partition("==>")
        if not arrow:
            case.fail(directive.line, "==> is missing")
        refuse = partial(case.fail, directive.line)
        arguments, expected = Arguments(program, given, refuse).read(), Arguments(program, wanted, refuse).read()
        if not expected:
            case.fail(directive.line, "nothing is expected")
        if unsupported:
            _run_unsupported(case, device, program, arguments, unsupported[0])
            return
        for opt in _LEVELS.get(device, (3,)):
            try:
                results, said = _run_heard(device, program, arguments, opt, config, expected)
            except Unsupported as error:
                if any(d.text in str(error) for d in case.all(f"needs on {device}")):
                    return
                raise
            problems += [f"{case.path.name}:{directive.line}: opt {opt}: {problem}" for problem in _unlike(case, directive, said)]
            for name, value in expected.items():
                if name not in results:
                    case.fail(directive.line, f"{name} is not written")
                problem = _compare(results[name], value, _tolerance(case, device))
                problems += [f"{case.path.name}:{directive.line}: opt {opt}: {name}{problem}"] if problem else []
    if problems:
        raise Failure("\n".join(problems))


def _run_heard(
    device: str, program: Program, arguments: Mapping[str, Any], opt: int, config: DispatchConfig | None, expected: Mapping[str, Array]
) -> tuple[Mapping[str, Array], tuple[list[str], str]]:
    """The written buffers, and what the Program says: the lines that it prints, and the error of an assert, "" where none fails."""
    lines: list[str] = []
    if not program.reports:
        return run_on(device, program, arguments, opt, config), (lines, "")
    # Results of a Program whose assert fails come out in place.
    out = {name: np.empty_like(value) for name, value in expected.items()}
    try:
        run_on(device, program, arguments, opt, replace(config or DispatchConfig(), on_print=lines.append), out)
    except KernelAssertion as error:
        return out, (lines, str(error))
    return out, (lines, "")


def _unlike(case: Case, run: Directive, said: tuple[list[str], str]) -> Iterator[str]:
    """How what a Program says differs from what the directives behind its run expect."""
    last = next((d.line for d in case.directives if d.word == "run" and d.line > run.line), run.line + len(case.text))
    mine = [d for d in case.directives if run.line < d.line < last]
    lines, error = said
    wanted = [d.text for d in mine if d.word == "printed"]
    if lines != wanted:
        yield f"it prints {lines}, expected {wanted}"
    words = [d.text for d in mine if d.word == "fails"]
    if bool(words) != bool(error) or any(text not in error for text in words):
        yield f"it fails with {error!r}, expected {words}"


def _run_unsupported(case: Case, device: str, program: Program, arguments: Mapping[str, Any], directive: Directive) -> None:
    try:
        run_on(device, program, arguments)
    except Unsupported as error:
        if directive.text not in str(error):
            case.fail(directive.line, f"Unsupported says: {error}")
        return
    case.fail(directive.line, f"{device} runs it, and was expected to answer Unsupported")


def _tolerance(case: Case, device: str) -> tuple[int, float, bool] | None:
    """ULP, absolute error, and whether subnormals and non-finite values are left out; None for exact."""
    for word in (f"tolerance on {device}", "tolerance"):
        for directive in case.all(word):
            ulp, absolute = re.search(r"ulp (\d+)", directive.text), re.search(r"abs ([0-9.e-]+)", directive.text)
            return int(ulp[1]) if ulp else 0, float(absolute[1]) if absolute else 0.0, word != "tolerance"
    return None


def _ordered(a: Array) -> Array:
    """Floats as integers in the order of their values, both zeros at 0."""
    word = a.view(f"i{a.dtype.itemsize}")
    # Those between NaNs may wrap; all others fit.
    return np.where(word < 0, np.iinfo(word.dtype).min - word, word).astype(np.int64)


def _least_normal(a: Array) -> float:
    """The least number of a float array's type that is not subnormal: its exponent's field is 1."""
    type_ = scalar_of(a.dtype)
    assert type_ is not None
    # Infinity is all ones in that field, and 0 in all below it.
    infinity = type_.canonical_nan & type_.canonical_nan << 1
    return float(decode(type_, infinity & -infinity))


def _compare(got: Array, want: Array, tolerance: tuple[int, float, bool] | None) -> str:
    got = np.asarray(got)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f" is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    word = np.dtype(f"u{want.dtype.itemsize}")
    got, want = np.ascontiguousarray(got), np.ascontiguousarray(want)
    same = got.view(word) == want.view(word)
    element = scalar_of(want.dtype)
    if element is not None and element.is_float:
        # To ask a bf16 whether it is a signalling NaN counts as an invalid operation.
        with np.errstate(invalid="ignore", over="ignore"):
            same |= np.isnan(got) & np.isnan(want)
            if tolerance is not None:
                same |= _near(got, want, *tolerance)
    wrong = np.argwhere(~same)
    lines = [f"{list(map(int, at))} = {got[tuple(at)]!s}, expected {want[tuple(at)]!s}" for at in wrong[:5]]
    return "; ".join(lines) + (f"; and {len(wrong) - 5} more" if len(wrong) > 5 else "")


def _near(got: Array, want: Array, ulp: int, absolute: float, loose: bool) -> Array:
    """Where floats are as near as a tolerance asks for."""
    found, wanted = got.astype(np.float64), want.astype(np.float64)
    near = np.abs(_ordered(got) - _ordered(want)) <= ulp
    near |= np.abs(found - wanted) <= absolute
    near &= ~(np.isnan(found) | np.isnan(wanted)) & ((np.signbit(found) == np.signbit(wanted)) | (absolute > 0) | loose)
    if loose:
        tiny = _least_normal(want)
        near |= ~np.isfinite(wanted) | ((np.abs(found) < tiny) & (np.abs(wanted) < tiny))
    return np.asarray(near)


# ---------------------------------------------------------------- races, unwritten


def run_watched(case: Case, word: str) -> None:
    """Runs a Program's cases while the reference device watches for what a word says: it finds what is expected, or nothing. Raises Failure."""
    expected, (config, error_class, what) = case.all(word), _WATCHES[word]
    if not expected:
        run_program(case, "reference", config)
        return
    program = case.parse()
    for directive in case.all("run") or case.fail(case.line, "no run directive follows this Program"):
        arguments = Arguments(program, directive.text, partial(case.fail, directive.line)).read()
        for opt in _LEVELS["reference"]:
            try:
                run_on("reference", program, arguments, opt, config)
            except error_class as error:
                missing = [d.text for d in expected if d.text not in str(error)]
                if missing:
                    case.fail(directive.line, f"opt {opt}: {missing} not in what is found:\n{error}")
            else:
                case.fail(directive.line, f"opt {opt}: no {what} is found")


# ---------------------------------------------------------------- passes


def run_pass(case: Case) -> str:
    """Runs the passes that a file names over a Program; gives the Program that comes out as text. Raises Failure.

    `optimise` runs all of them, and remarks on the accesses proven inside.
    """
    names = [d.text for d in case.all("pass")]
    if not names or any(name not in (*PASSES, "optimise") for name in names):
        case.fail(case.line, f"passes {names} are not in {sorted(PASSES)}")
    program = parse(case.text.partition("\n" + _BECOMES)[0], case.path.name)
    annotated: Callable[[int], str] | None = None
    for name in names:
        checked = check(program)
        if name == "optimise":
            optimised = optimise(checked, expand=frozenset())
            program, annotated = optimised.program, annotate(optimised)
        else:
            program, annotated = PASSES[name](program), None
    check(program)
    return print_program(program, annotated)


def expected_after(case: Case) -> str:
    """What a passes file says comes out."""
    return case.text.partition("\n" + _BECOMES)[2].strip("\n") + "\n"


def rewrite_passes(path: Path, made: Iterable[tuple[Case, str]]) -> None:
    """Puts what came out into a passes file."""
    text = before = path.read_text(encoding="utf-8")
    for case, after in made:
        head = case.text.lstrip("\n").partition("\n" + _BECOMES)[0].rstrip("\n")
        old = case.text.lstrip("\n").rstrip("\n")
        text = text.replace(old, f"{head}\n{_BECOMES}\n{after.rstrip()}")
    if text != before:
        path.write_text(text, encoding="utf-8")


# ---------------------------------------------------------------- lower


def run_lower(case: Case, emit: Callable[[Program, str, CompileOptions], str]) -> None:
    """Compares the text that targets emit for a Program with patterns and goldens. Raises Failure."""
    program = case.parse()
    text, at, target = "", 0, ""
    if not case.all("lower"):
        case.fail(case.line, "no lower directive")
    for directive in (*case.common, *case.directives):
        if directive.word == "lower":
            target = directive.text
            name, *words = target.split()
            options: dict[str, Any] = dict(("numerics", word) if word in _NUMERICS else (word, True) for word in words)
            text, at = emit(program, name, CompileOptions(**options)), 0
        elif directive.word == "contains":
            found = text.find(directive.text, at)
            if found < 0:
                case.fail(directive.line, f"{target} does not contain {directive.text!r} after {text[:at].count(chr(10))} lines of:\n{text}")
            at = found + len(directive.text)
        elif directive.word == "lacks" and directive.text in text:
            case.fail(directive.line, f"{target} contains {directive.text!r}:\n{text}")
        elif directive.word == "golden":
            _golden(case, directive, program.name, target, text)


def _golden(case: Case, directive: Directive, name: str, target: str, text: str) -> None:
    path = GOLDEN / re.sub(r"[^A-Za-z0-9_.-]", "-", f"{case.path.stem}.{name}.{target}.txt")
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    if UPDATE:
        path.write_text(text, encoding="utf-8")
    elif before != text:
        changes = "\n".join([*difflib.unified_diff(before.split("\n"), text.split("\n"), path.name, target, lineterm="")][:60])
        case.fail(directive.line, f"{target} emits something else now; VYRE_UPDATE=1 rewrites the golden:\n{changes}")
