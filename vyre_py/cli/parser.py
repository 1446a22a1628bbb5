"""The command line's arguments: one function per command. Building it imports no command."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Final, TypeAlias

import vyre_py
from vyre_py.cli.output import say
from vyre_py.cli.values import destination, given
from vyre_py.ir.language.errors import printable
from vyre_py.lowering.options import CompileOptions

__all__ = ["compile_options", "make_parser", "other_options", "parse"]

_STATUS: Final = "Exit status: 0 done, 1 the work failed (the message says why), 2 the command line was wrong, 130 interrupted."
_PROGRAM: Final = "a Program: .vir text, bytes or JSON, told apart by content; - is standard input"
_CODE: Final = "a Program (.vir text, bytes or JSON) or compiled code (.vyre), told apart by content; - is standard input"
_DEVICE: Final = "cuda, wgpu, cpu or reference, with an ordinal if wanted (cuda:0); without it VYRE_DEVICE, else the best that is here"
_TARGETS: Final = (
    "sm_90 (machine code of an NVIDIA GPU, and PTX for newer ones; 70 and up), compute_90 (PTX alone), wgsl, wgsl:f64, wgsl:subgroup32, "
    "wgsl:f64:i64:f16:i64atomics:f32atomics:subgroup32 and what lies between, cpu, cpu:x86-64-v3, cpu:x86-64-v4, cpu:aarch64, reference"
)
_ARGUMENTS: Final = (
    "name=2.5 for scalars (exactly a value of the type; components of vectors with commas between), name=1000 for sizes, name=@file.npy or "
    "name=1,2,3 for arrays, @file.npz for several by their names"
)

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class _Parser(argparse.ArgumentParser):
    """Prints what it is asked for as commands print: argparse itself hides that it could not be written."""

    def print_help(self, file: object = None) -> None:
        """How a command is called."""
        say(self.format_help(), end="")


class _Version(argparse.Action):
    """Prints the version, and ends the process."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        say(f"vyre-py {vyre_py.__version__}")
        parser.exit()


def _command(commands: _Commands, name: str, run: str, help: str, *, json: bool = True, epilog: str | None = None) -> argparse.ArgumentParser:
    """A command that `run`, `module:function`, does; `json` adds --json."""
    parser = commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.", epilog=epilog)
    parser.set_defaults(run=run, refuse=parser.error, json=False)
    if json:
        parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def _workgroup(text: str) -> tuple[int, ...]:
    sizes = text.split(",")
    if not 1 <= len(sizes) <= 3 or not all(size.isascii() and size.isdigit() for size in sizes):
        raise argparse.ArgumentTypeError(f"{text!r} is not a workgroup: X, X,Y or X,Y,Z")
    return (*map(int, sizes), 1, 1)[:3]


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in seconds")
    return value


def _options(parser: argparse.ArgumentParser) -> None:
    """The options that change code; those that are not given are None."""
    group = parser.add_argument_group("code")
    group.add_argument("--codegen", choices=("llvm", "nvvm"), help="what makes PTX: llvm (default; needs nothing), or nvvm (libNVVM)")
    group.add_argument("--opt", type=int, metavar="N", help="how hard to optimise: 0 (not at all) to 3 (default)")
    group.add_argument("--numerics", choices=("strict", "fast", "native"), help="rules of floating point (default: the target's own)")
    group.add_argument("--workgroup", type=_workgroup, metavar="X,Y,Z", help="another workgroup size than the Program's")
    group.add_argument("--debug", "--lines", action="store_true", default=None, help="keep the lines of the source in the code")
    group.add_argument("--no-asserts", dest="asserts", action="store_false", default=None, help="leave asserts out of the code")
    group.add_argument("--print-bytes", type=int, metavar="N", help="room for what the prints of a launch say (default: 65536); 0 leaves them out")


def compile_options(arguments: argparse.Namespace) -> CompileOptions:
    """The options that were given. Raises Unsupported for a value that no target knows."""
    names = ("codegen", "opt", "numerics", "workgroup", "debug", "asserts", "print_bytes")
    return CompileOptions(**{name: value for name in names if (value := getattr(arguments, name)) is not None})


def other_options(words: Sequence[str], parsed: argparse.Namespace) -> argparse.Namespace:
    """Arguments of `lower` with these of its options besides, each as NAME=VALUE or NAME. Ends the process for what is no option of code, as `parse` does."""
    parser = _Parser(prog="vyre-py lower --diff", add_help=False, allow_abbrev=False)
    parser.add_argument("--target")
    _options(parser)
    found, rest = parser.parse_known_args([f"--{word}" for word in words])
    if rest:
        parsed.refuse(f"--diff knows options of code and target; it is not told what {printable(' '.join(rest))} is")
    return argparse.Namespace(**{**vars(parsed), **{name: value for name, value in vars(found).items() if value is not None}})


def _machines(commands: _Commands) -> None:
    demo = _command(commands, "demo", "machines:demo", "equalise and sharpen a photograph on the best device")
    demo.add_argument("--device", help=_DEVICE)
    demo.add_argument("--picture", help="a picture of your own (PNG or JPEG)")
    demo.add_argument("--out", default="vyre-demo.png", help="where the result goes (default %(default)s)")
    devices = _command(commands, "devices", "machines:devices", "which devices are here, and why the rest are not")
    devices.add_argument("--all", action="store_true", help="with all that their drivers say: features, limits, sizes, clocks")
    doctor = _command(
        commands, "doctor", "doctor:doctor", "versions, drivers, what is missing and how to get it, and a self test of each device",
        epilog="Exit status: 0 when the devices reference and cpu work, 1 when one of them does not.",
    )  # fmt: skip
    doctor.add_argument("--timeout", type=_count, default=60, metavar="SECONDS", help="how long each look at a device may take (default %(default)s)")


def _programs(commands: _Commands) -> None:
    check = _command(commands, "check", "checking:check", "every finding about Programs, and whether compiled code is whole; status 1 when one is not")
    check.add_argument("files", nargs="+", metavar="FILE", help=_CODE)

    lower = _command(commands, "lower", "checking:lower", "what a target emits for a Program", json=False)
    lower.add_argument("file", metavar="FILE", help=_PROGRAM)
    forms = "vir (the Program as it reaches the target's emitter), llvm, nvvm (LLVM IR for libNVVM), ptx, cubin, sass, wgsl or asm (of the host)"
    lower.add_argument("--emit", metavar="FORM", choices=("vir", "llvm", "nvvm", "ptx", "cubin", "sass", "wgsl", "asm"), help=forms)
    lower.add_argument("--target", help=f"{_TARGETS}; --emit alone means one that has the form")
    lower.add_argument("-o", "--out", metavar="OUT", help="where it goes (default: standard output)")
    diff = "side by side with what another option gives: opt=0, numerics=fast, target=sm_80, debug; may be given several times, for all of them together"
    lower.add_argument("--diff", action="append", metavar="OPTION=VALUE", help=diff)
    _options(lower)

    compile_ = _command(commands, "compile", "compiling:compile_files", "compile Programs ahead of time: one artifact each, for all targets")
    compile_.add_argument("files", nargs="+", metavar="FILE", help=_PROGRAM)
    compile_.add_argument("--target", action="append", required=True, dest="targets", help=f"{_TARGETS}; may be given several times")
    compile_.add_argument("-o", "--out", metavar="OUT", help="the artifact (-: standard output), for several FILEs a folder (default: FILE's name, .vyre)")
    compile_.add_argument("--workers", type=_count, metavar="N", help="how many processes compile several FILEs (default: one a core)")
    _options(compile_)


def _runs(commands: _Commands) -> None:
    run = _command(commands, "run", "running:run", "run a Program once, and show or keep what it writes")
    bench = _command(commands, "bench", "benching:bench", "bind a Program once and launch it many times: medians, their spread, rates beside the device's roof")
    for parser, more in ((run, ""), (bench, "; arrays that are not given are made, of random floats from -1 to 1, and of zeros for integers and bools")):
        parser.add_argument("file", metavar="FILE", help=_CODE)
        parser.add_argument("arguments", nargs="*", type=given, metavar="NAME=VALUE", help=_ARGUMENTS + more)
        parser.add_argument("--device", help=_DEVICE)
        _options(parser)
    run.add_argument("--out", action="append", type=destination, default=[], metavar="NAME=FILE.npy", help="keep a result; or FILE.npz for all of them")
    run.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="end the kernel after so long; on cpu and cuda, as Ctrl-C ends it")
    run.add_argument("--races", action="store_true", help="watch for invocations that race for an element of memory; on the device reference, which it takes")
    run.add_argument("--unwritten", action="store_true", help="watch for reads of workgroup and private arrays where nothing has written; there, too")
    run.add_argument("--time", action="store_true", help="say how long it took")
    bench.add_argument("--repeat", type=_count, default=9, metavar="N", help="how many rounds of launches are timed (default %(default)s)")
    bench.add_argument("--plot", metavar="FILE", help="draw a roofline; the ending says the format: .svg, .png, .pdf (needs matplotlib: the extra plot)")
    bench.add_argument("--beside", action="append", default=[], metavar="REPORT", help="draw what an earlier bench --json on this device found, too")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to 65535")
    return int(text)


def _served(parser: argparse.ArgumentParser) -> None:
    """How a page is shown."""
    parser.add_argument("--html", metavar="OUT", help="write the page as one file, with all in it, to keep or to send, and serve nothing")
    parser.add_argument("--port", type=_port, default=0, help="where it is served (default: a free one)")
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def _pages(commands: _Commands) -> None:
    alone = "The page is served to this machine alone, at an address nobody can guess, until Ctrl-C."
    explore = _command(
        commands, "explore", "exploring:explore", "a page of Programs: each pass, the code for each target side by side, and a run to step through",
        json=False, epilog=f"{alone} A Python file is run, as Python runs it.",
    )  # fmt: skip
    explore.add_argument("file", metavar="FILE", help=f"{_CODE}; or a Python file (.py) that builds Programs")
    explore.add_argument("arguments", nargs="*", type=given, metavar="NAME=VALUE", help="sizes, scalars and lists for the run; the rest is made up")
    explore.add_argument("--target", action="append", dest="targets", help=f"{_TARGETS}; may be given several times (default: sm_90, wgsl, cpu)")
    _served(explore)
    _options(explore)
    trace = _command(commands, "trace", "tracing:trace", "a page of a trace: spans, what they add up to, a roofline", json=False, epilog=alone)
    trace.add_argument("file", metavar="FILE", help="what vyre_py.trace or VYRE_TRACE wrote; - is standard input")
    trace.add_argument("--beside", action="append", default=[], metavar="REPORT", help="a report of bench --json on the same device, for the roofline's lines")
    _served(trace)


def _cache(commands: _Commands) -> None:
    cache = commands.add_parser("cache", help="the disk cache of compiled code", description="The disk cache of compiled code.")
    actions = cache.add_subparsers(dest="action", required=True, metavar="ACTION")
    _command(actions, "stats", "caching:stats", "where it lies, and how much is in it")
    _command(actions, "list", "caching:entries", "every entry, last used first")
    _command(actions, "verify", "caching:verify", "read every entry as a device would, and set bad ones aside; status 1 when there is one")
    _command(actions, "clear", "caching:clear", "take all entries away")
    export = _command(actions, "export", "caching:export", "all entries into one file, for another machine")
    export.add_argument("file", metavar="FILE", help="the bundle")
    import_ = _command(actions, "import", "caching:import_", "take the entries of a bundle in; all of it is checked before any is taken")
    import_.add_argument("file", metavar="FILE", help="the bundle")


def _tables(commands: _Commands) -> None:
    explain = _command(commands, "explain", "tables:explain", "what a finding's code means, and what helps")
    explain.add_argument("code", metavar="CODE", help="as findings begin: V201")
    completion = _command(commands, "completion", "completion.shells:completion", "a script that has a shell complete this command line", json=False)
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help='for bash: eval "$(vyre-py completion bash)"')
    ops = _command(commands, "ops", "tables:ops", "the ops of the language")
    ops.add_argument("name", nargs="?", metavar="NAME", help="one op, by its name or operator")


def make_parser() -> argparse.ArgumentParser:
    """All commands with their arguments, for whoever parses or describes them."""
    parser: argparse.ArgumentParser = _Parser(prog="vyre-py", description="A kernel compiler and driver for Python.", epilog=_STATUS)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in (_machines, _programs, _runs, _pages, _cache, _tables):
        group(commands)
    return parser


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments of one command. They have `run`, the command as `module:function` of `vyre_py.cli`, `json`, and `refuse`, which ends the process for
    a wrong command line with status 2, as this does.
    """
    arguments, rest = make_parser().parse_known_args(argv)
    # argparse gives up on a list of words once an option stands between them.
    if rest and (not hasattr(arguments, "arguments") or any(word.startswith("-") for word in rest)):
        arguments.refuse(f"unrecognized arguments: {printable(' '.join(rest))}")
    try:
        for word in rest:
            arguments.arguments.append(given(word))
    except argparse.ArgumentTypeError as error:
        arguments.refuse(str(error))
    return arguments
