"""Line information: the place in `.vir` text or in Python that each instruction comes from, as LLVM's debug metadata.

LLVM turns it into DWARF's line table in an object, and into `.file` and `.loc` in PTX, from which the assembler makes the line table of machine code. No
instruction changes. Statements without a place give instructions without one; a Program without any gets no metadata at all.

The forms are those that LLVM 7 has as well, so libNVVM reads the same nodes for every architecture, without an option of its own. A kernel that is
inlined into another function has its places in that one's scope, and no scope itself: so they stay the places of one function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vyre_py.ir.language.errors import Place, escaped
from vyre_py.ir.language.program import Program
from vyre_py.lowering.llvm.text import ModuleText

__all__ = ["FunctionLines", "LineTables", "lines_of"]

_MAX_LINE: Final = (1 << 32) - 1
_MAX_COLUMN: Final = (1 << 16) - 1
# Bytes of a file's name, of which the end is kept: as many as a path has on Linux. NVIDIA's assembler (13.5) crashes somewhere above 9,000.
_MAX_NAME: Final = 4096


def _is_printable(character: str) -> bool:
    return character.isprintable() and character not in '"\\'


def _is_plain(character: str) -> bool:
    return _is_printable(character) and character.isascii()


# What reads the metadata -> how much LLVM is to write, and which characters of a file's name it takes as they are. NVIDIA's assembler knows no
# escapes in strings and takes no character beyond ASCII; and the full tables that other kinds give would have it leave out its optimisations.
_KINDS: Final[dict[str, tuple[str, Callable[[str], bool]]]] = {
    "ptx": ("DebugDirectivesOnly", _is_plain),
    "object": ("LineTablesOnly", _is_printable),
}


def _quoted(text: str, takes: Callable[[str], bool] = _is_printable) -> str:
    """A string of LLVM's from untrusted text, without what LLVM does not take."""
    data = escaped(text, takes).encode()[-_MAX_NAME:]
    return '"' + "".join([chr(byte) if 32 <= byte < 127 else f"\\{byte:02X}" for byte in data]) + '"'


class FunctionLines:
    """The places of one function: `attached` goes to its definition, `at` to each instruction."""

    def __init__(self, tables: LineTables | None, program: Program) -> None:
        self._program = program
        self._tables = tables
        self._scope = self.attached = ""
        self._known: dict[tuple[str, int, int], str] = {}  # file, line, column -> node
        self._scopes: dict[str, str] = {}  # file -> node
        first = program.declared.get(None) or next((place for place in program.places if place is not None), None)
        if tables is not None and first is not None:
            self._scope = self._scopes[first.file] = tables.subprogram(program.name, first)
            self.attached = f" !dbg {self._scope}"

    @property
    def head(self) -> str:
        """What goes to instructions before the first statement: the place of the Program itself, where it is known."""
        return self._attachment(self._program.declared.get(None))

    def at(self, index: int) -> str:
        """What goes to the instructions of a statement; empty where its place is not known."""
        return self._attachment(self._program.place(index)) if self._scope else ""

    def _attachment(self, place: Place | None) -> str:
        if place is None or self._tables is None:
            return ""
        key = place.file, place.line, place.column
        if key not in self._known:
            scope = self._scopes.get(place.file)
            if scope is None:
                file = self._tables.file(place.file)
                scope = self._scopes[place.file] = self._tables.node(f"!DILexicalBlockFile(scope: {self._scope}, file: {file}, discriminator: 0)")
            line = place.line if 0 <= place.line <= _MAX_LINE else 0
            column = place.column if 0 <= place.column <= _MAX_COLUMN else 0
            self._known[key] = self._tables.node(f"!DILocation(line: {line}, column: {column}, scope: {scope})")
        return f", !dbg {self._known[key]}"


class LineTables:
    """The debug metadata of one module: its files, and the functions that have places. `kind` says what is made of it: "ptx", or "object"."""

    def __init__(self, module: ModuleText, kind: str) -> None:
        self._module = module
        self._emission, self._takes = _KINDS[kind]
        self._files: dict[str, str] = {}
        self._unit = self._type = ""

    def node(self, text: str) -> str:
        """Adds a node to the module; gives its name."""
        return self._module.node(text)

    def file(self, name: str) -> str:
        """The node of a file."""
        if name not in self._files:
            # LLVM takes no empty name.
            self._files[name] = self.node(f'!DIFile(filename: {_quoted(name or "?", self._takes)}, directory: "")')
        return self._files[name]

    def subprogram(self, name: str, place: Place) -> str:
        """The node of a function that begins at a place."""
        file = self.file(place.file)
        if not self._unit:
            # The language is one that every reader knows; only a debugger that evaluates expressions looks at it.
            self._unit = self.node(
                f'distinct !DICompileUnit(language: DW_LANG_C99, file: {file}, producer: "vyre-py", isOptimized: true, '
                f"runtimeVersion: 0, emissionKind: {self._emission})"
            )
            self._type = self.node(f"!DISubroutineType(types: {self.node('!{}')})")
            self._module.named["llvm.dbg.cu"] = [self._unit]
            self._module.named["llvm.module.flags"] = [self.node('!{i32 2, !"Debug Info Version", i32 3}')]
        line = min(max(place.line, 0), _MAX_LINE)
        return self.node(
            f"distinct !DISubprogram(name: {_quoted(name, self._takes)}, scope: {file}, file: {file}, line: {line}, type: {self._type}, unit: {self._unit})"
        )


def lines_of(module: ModuleText, program: Program) -> FunctionLines:
    """The places of a Program's function in a module, which are none where the module keeps no line tables (`ModuleText.line_tables`)."""
    return FunctionLines(module.line_tables, program)
