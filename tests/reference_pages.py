"""The pages of the site that are made from the code: public names, options, variables of the environment, the command line, and the examples."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from tree import ROOT

import vyre_py as vp
from vyre_py._names import LAZY
from vyre_py.cli.parser import make_parser
from vyre_py.drivers import config
from vyre_py.ir.builder.functions import FUNCTIONS
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import VECTORS
from vyre_py.lowering import options
from vyre_py.settings import Settings

__all__ = ["REFERENCE"]

_MADE: Final = "Made from {} by `python tests/pages.py`; changes belong there.\n"
# Where a name is defined -> the heading that it stands under: the first that fits.
_HOMES: Final = tuple({
    "vyre_py.ir.language.errors": "Errors and warnings", "vyre_py.lowering.errors": "Errors and warnings", "vyre_py.drivers.errors": "Errors and warnings",
    "vyre_py.ir.language.types": "Types", "vyre_py.ir": "Programs", "vyre_py.ops": "Ready Programs and tuning",
    "vyre_py.tuning": "Ready Programs and tuning", "vyre_py.lowering": "Compiling", "vyre_py.native": "Compiling", "vyre_py.many": "Compiling",
    "vyre_py.export_c": "Compiling", "vyre_py.export_web": "Compiling", "vyre_py.headers": "Compiling",
    "vyre_py.drivers.cache": "Compiling", "vyre_py.drivers.lru": "Compiling",
    "vyre_py.drivers.many": "Many launches", "vyre_py.drivers.observe": "Observing", "vyre_py.drivers.memory": "Memory",
    "vyre_py.drivers": "Devices and launches",
}.items())  # fmt: skip
_ORDER: Final = (
    "Programs", "Types", "Compiling", "Devices and launches", "Many launches", "Memory", "Ready Programs and tuning", "Observing", "Errors and warnings",
)  # fmt: skip

# Classes that users call; objects of others are made by functions and methods.
_CONSTRUCTED: Final = ("DiskCache", "Executor", "ProgramBuilder", "Sobol", "Sort", "TileBuilder")


def _plain(text: str) -> str:
    """Words of a docstring as Markdown: what is code there stays code, and other signs are no marks."""
    parts = re.split(r"(``?[^`]+``?)", text)
    return "".join(part if k % 2 else re.sub(r"([*_<\[\]|])", r"\\\1", part) for k, part in enumerate(parts))


def _words(thing: Any) -> str:
    """A docstring, whose indented parts are blocks."""
    lines, block = [], False
    for line in (inspect.getdoc(thing) or "").splitlines():
        code = line.startswith("    ") or (block and not line.strip())
        if code and not block:
            lines.append("```text")
        elif block and not code:
            lines.insert(len(lines) - (not lines[-1].strip()), "```")  # before the blank line that separates the two
        block = code
        lines.append(line.removeprefix("    ") if block else _plain(line))
    if block:
        while not lines[-1].strip():
            lines.pop()
        lines.append("```")
    return "\n".join(lines).strip()


def _first_sentence(thing: Any) -> str:
    paragraph = (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")
    return _plain(re.split(r"(?<=[.:;])\s", paragraph, maxsplit=1)[0].rstrip(".:;"))


def _signature(name: str, thing: Any) -> str:
    try:
        found = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return name
    found = re.sub(r"(: |-> )'([^']+)'", r"\1\2", found)
    return name + re.sub(r"<(?:[\w.]+ )?(\w+)(?: object)? at 0x[0-9a-f]+>", r"\1", found).replace("vyre_py.", "").replace("self, ", "").replace("(self)", "()")


def _members(owner: type) -> Iterator[tuple[str, str]]:
    """The public methods and properties of a class and of those that it is made of, but for those of other people's classes."""
    for name in sorted(dir(owner)):
        home = next((one for one in owner.__mro__ if name in vars(one)), object)
        if name.startswith("_") or not home.__module__.startswith("vyre_py"):
            continue
        member = inspect.getattr_static(owner, name)
        kept = hasattr(member, "__get__") and not callable(member) and not inspect.ismemberdescriptor(member)
        if isinstance(member, property) or (kept and member.__doc__):
            yield name, _first_sentence(member)
        elif isinstance(member, classmethod | staticmethod) or inspect.isfunction(member):
            yield _signature(name, getattr(owner, name)), _first_sentence(member.__func__ if isinstance(member, classmethod | staticmethod) else member)


def _entry(name: str) -> str:
    thing = getattr(vp, name)
    lines = [f"### {name}\n"]
    if inspect.isclass(thing):
        if name in _CONSTRUCTED or (not issubclass(thing, BaseException) and dataclasses.is_dataclass(thing)):
            lines.append(f"```text\n{_signature(name, thing)}\n```\n")
        lines.append(_words(thing) + "\n")
        rows = [f"| `{call.replace('|', chr(92) + '|')}` | {said} |" for call, said in _members(thing)]
        lines += ["| | |", "|---|---|", *rows, ""] if rows else []
    else:
        lines += [f"```text\n{_signature(name, thing)}\n```\n", _words(thing) + "\n"]
    return "\n".join(lines)


def names_page() -> str:
    """All public names."""
    sections: dict[str, list[str]] = {title: [] for title in _ORDER}
    for name, home in LAZY.items():
        if name == "fast" or name in FUNCTIONS:
            continue
        title = next(title for prefix, title in _HOMES if home.startswith(prefix))
        sections[title].append(name)
    parts = ["# Public names\n", _MADE.format("`vyre_py/_names.py` and the docstrings")]
    parts += ["All of them are attributes of `vyre_py`, which is imported as `vp` here.\n"]
    functions = [f"`{name}`" for name in sorted(FUNCTIONS)]
    for title, names in sections.items():
        parts.append(f"## {title}\n")
        if title == "Types":
            parts.append("Scalars: " + ", ".join(f"`{name}`" for name in sorted(names) if name != "Type") + ".\n")
            parts.append("Vectors: " + ", ".join(f"`{name}`" for name in VECTORS) + ".\n")
        parts += [_entry(name) for name in sorted(names, key=str.lower) if title != "Types" or name == "Type"]
    parts += ["## Functions of ops\n", f"Each is a row of [Ops](../../ir/OPS.md): {', '.join(functions)}.\n"]
    parts.append("`vp.fast` has those that may be approximated: " + ", ".join(f"`{op.approximates}`" for op in OPS.values() if op.approximates) + ".")
    return "\n".join(parts) + "\n"


def ready_page() -> str:
    """The ready Programs."""
    said = f"{_first_sentence(vp.ops)}: each function gives the Program for its types and the sizes that are fixed.\n"
    parts = ["# Ready Programs\n", _MADE.format("the docstrings of `vyre_py/ops/`"), said]
    parts.append("Buffers and params are bound by the names that each says. [The guide](../guide/functions.md#ready-programs) shows them at work.\n")
    parts.append("[`vp.Sort`](names.md#sort) and [`vp.Sobol`](names.md#sobol) hold what is needed besides Programs.\n")
    for name in sorted(vp.ops.__all__, key=str.lower):
        thing = getattr(vp.ops, name)
        if callable(thing):
            parts.append(f"## vp.ops.{name}\n\n```text\n{_signature(name, thing)}\n```\n\n{_words(thing)}\n")
        else:
            parts.append(f"## vp.ops.{name}\n\n" + ", ".join(f"`{one!r}`" for one in thing) + ".\n")
    return "\n".join(parts)


def _fields(owner: Any, fits: Any, head: str) -> str:
    rows = [f"| `{field.name}` | {_plain(fits[field.name][1])} | `{field.default!r}` |" for field in dataclasses.fields(owner)]
    return "\n".join([f"## {head}\n", _words(owner) + "\n", "| option | what it is | without it |", "|---|---|---|", *rows, ""])


def options_page() -> str:
    """Options of code and of launches."""
    return "\n".join([
        "# Options\n", _MADE.format("`lowering/options.py` and `drivers/config.py`"), "[The guide](../guide/options.md) says where each is honoured.\n",
        _fields(options.CompileOptions, options._FITS, "CompileOptions"), _fields(config.DispatchConfig, config._FITS, "DispatchConfig"),
    ])  # fmt: skip


def environment_page() -> str:
    """Variables of the environment."""
    rows = []
    for variable, name, meaning in Settings.rows():
        default = Settings.model_fields[name].default
        mebibytes = f"{default >> 20} MiB" if type(default) is int and default % (1 << 20) == 0 else f"`{default}`"
        rows.append(f"| `{variable}` | {_plain(meaning)} | {'' if default in (None, ()) else mebibytes} |")
    return "\n".join([
        "# Environment\n", _MADE.format("`vyre_py/settings.py`"),
        "`python -m vyre_py doctor` shows what is set, and names what is misspelt. `vyre_py.settings.Settings.from_environment()` reads all of them.\n",
        "| variable | what it does | without it |", "|---|---|---|", *rows, "",
    ])  # fmt: skip


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        values = "" if action.nargs == 0 else " " + str(action.metavar or (",".join(map(str, action.choices)) if action.choices else action.dest.upper()))
        name = ", ".join(f"`{option}{values}`" for option in action.option_strings) or f"`{action.metavar or action.dest}`"
        yield f"| {name} | {_plain((action.help or '') % {'default': action.default})} |"


def commands_page() -> str:
    """The command line."""
    parser = make_parser()
    (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    parts = ["# Commands\n", _MADE.format("`vyre_py/cli/parser.py`")]
    parts += ["`vyre-py COMMAND --help` says the same; [the guide](../guide/command-line.md) shows them.\n"]
    stack = [("vyre-py", commands)]
    while stack:
        before, group = stack.pop(0)
        for name, command in group.choices.items():
            parts.append(f"## {before} {name}\n\n{_plain(command.description or '')}\n")
            rows = list(_arguments(command))
            if rows:
                parts.append("\n".join(["| | |", "|---|---|", *rows]) + "\n")
            if command.epilog:
                parts.append(_plain(command.epilog) + "\n")
            stack += [(f"{before} {name}", action) for action in command._actions if isinstance(action, argparse._SubParsersAction)]
    return "\n".join(parts)


def examples_page() -> str:
    """The examples, by what each says of itself."""
    rows = []
    for path in sorted((ROOT / "examples").glob("*.py")):
        said = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0].replace("\n", " ")
        rows.append(f"| [{path.name}](../../examples/{path.name}) | {_plain(said)} |")
    return "\n".join([
        "# Examples\n", _MADE.format("the files in `examples/`"),
        "Short programs to run and to change, numbered in the order to read them: `python examples/01_axpy.py`. Most take the name of a device.\n",
        "| file | what it is |", "|---|---|", *rows, "",
    ])  # fmt: skip


REFERENCE: Final[dict[str, Callable[[], str]]] = {
    "docs/reference/names.md": names_page, "docs/reference/ready-programs.md": ready_page, "docs/reference/options.md": options_page,
    "docs/reference/environment.md": environment_page,
    "docs/reference/commands.md": commands_page, "docs/start/examples.md": examples_page,
}  # fmt: skip
