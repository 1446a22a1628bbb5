"""Verification: columns are those of a Program of sound form, so that building one cannot fail. Nothing is built before.

Laws, each for whole columns at once, in the order in which they rely on each other:

* W107: statements, nesting and names keep the limits of `ir.check.limits`, sizes that of `ir.language.dims`, declarations `MAX_DECLARATIONS`.
* W105, W112: every code is in the registry; a statement has a type exactly where it binds a value or declares a variable; constants are
  scalars whose bits fit.
* W106: every reference is a row of its table.
* W110, W111: blocks nest; values and variables come before their uses.
* W108: strings are UTF-8.
* W109, asked of bytes only: columns are those that `flatten` writes, so that a Program has one form.

What a Program means is not looked at: `ir.check` does that. The cost is a few passes of NumPy over each column, a short loop for each
string and each node of a size, and scratch memory of a few megabytes, whatever the columns hold.
"""

from __future__ import annotations

import codecs
from itertools import chain
from typing import Final

import numpy as np

from vyre_py.ir.check.limits import MAX_FUNCTIONS, MAX_NAME, MAX_NESTING, MAX_STATEMENTS
from vyre_py.ir.language.types import Array
from vyre_py.ir.wire.codes import OPERAND_KINDS
from vyre_py.ir.wire.flat import Fault, Flat
from vyre_py.ir.wire.size_table import ranked
from vyre_py.ir.wire.statement_codes import CODES
from vyre_py.ir.wire.tables import (
    BINDS,
    CLOSES,
    CONSTANT_MASKS,
    IS_ACCESS,
    IS_CODE,
    IS_SCALAR,
    IS_SPACE,
    IS_TYPE,
    OPENS,
    REFERS,
    REFERS_FUNCTION,
    REFERS_MEMORY,
    REFERS_STRING,
    REFERS_VARIABLE,
    TYPED,
)

__all__ = ["MAX_DECLARATIONS", "verify"]

MAX_DECLARATIONS: Final = 1 << 16  # dims, params and memories, each

_CHUNK: Final = 4096  # rows looked at together where a row has many entries, or takes a loop
_TEXT_CHUNK: Final = 1 << 16
_CONTINUES: Final = (0x80, 0xC0)  # the first byte of a character is none of these


def verify(flat: Flat, canonical: bool) -> None:
    """Raises Fault unless `flat` is a Program of sound form and, where asked, in its canonical form. The columns' lengths must agree."""
    _Verifier(flat, canonical).run()


def _first(wrong: Array) -> int:
    """The first entry that is true, or -1."""
    at = int(wrong.argmax()) if len(wrong) else 0
    return at if len(wrong) and wrong[at] else -1


class _Verifier:
    """One look over all columns. The flags say which rows of a table something refers to."""

    def __init__(self, flat: Flat, canonical: bool) -> None:
        self.flat, self.canonical = flat, canonical
        self.strings = np.zeros(flat.count("strings"), np.bool_)
        self.names = np.zeros(flat.count("strings"), np.bool_)  # those that are names, whose length is limited
        self.sizes = np.zeros(flat.count("sizes"), np.bool_)
        self.constants = np.zeros(flat.count("constants"), np.bool_)

    def run(self) -> None:
        self.functions()
        self.declarations()
        self.statements()
        self.references()
        self.nesting()
        self.operands()
        self.labels("named_values", "value_names", int(np.count_nonzero(BINDS[self.flat.codes])), "value")
        self.labels("named_variables", "variable_names", int(np.count_nonzero(self.flat.codes == CODES["var"])), "variable")
        self.places()
        self.size_nodes()
        self.constant_rows()
        self.used("strings", "string_lengths", self.strings)
        self.text()
        self.string_rows()

    # ---- shared

    def members(self, column: str, table: Array, what: str) -> None:
        """Every entry of a column is a code of the registry."""
        entries = getattr(self.flat, column)
        at = _first(~table[entries])
        if at >= 0:
            raise Fault("W105", f"{int(entries[at])} is not a valid {what}", column, at)

    def below(self, column: str, entries: Array, flags: Array, what: str, start: int = 0) -> None:
        """Every entry is a row of a table; `flags` are the table's."""
        if not len(entries):
            return
        if int(entries.max()) >= len(flags):
            at = _first(entries >= len(flags))
            raise Fault("W106", f"{what} {int(entries[at])} where there are {len(flags)}", column, start + at)
        flags[entries] = True

    def naming(self, column: str, entries: Array) -> None:
        """Every entry is a string that serves as a name."""
        self.below(column, entries, self.strings, "string")
        self.names[entries] = True

    def single(self, column: str, entry: int, flags: Array, what: str, index: int = 0) -> None:
        """A reference in the header."""
        if entry >= len(flags):
            raise Fault("W106", f"{what} {entry} where there are {len(flags)}", column, index)
        flags[entry] = True

    def used(self, table: str, column: str, flags: Array) -> None:
        """Every row of a table is referred to."""
        if self.canonical and not flags.all():
            raise Fault("W109", f"row {_first(~flags)} of the {table} is used by nothing", column, _first(~flags))

    # ---- declarations

    def functions(self) -> None:
        """Their bodies, one by one. They have no functions, so this goes no deeper; with the Program's own body they share a limit of statements."""
        functions = self.flat.functions
        if len(functions) > MAX_FUNCTIONS:
            raise Fault("W107", f"{len(functions)} functions, at most {MAX_FUNCTIONS} are allowed", "function", MAX_FUNCTIONS)
        count = len(self.flat.codes)
        for number, body in enumerate(functions):
            count += len(body.codes)
            if count > MAX_STATEMENTS:
                raise Fault("W107", f"more than {MAX_STATEMENTS} statements, those of functions included", "function", number)
            if body.functions:
                raise Fault("W117", f"function {number} has functions of its own", "function", number)
            try:
                verify(body, self.canonical)
            except Fault as fault:
                raise Fault(fault.code, f"function {number}: {fault.message}", "function", number, fault.help) from None

    def declarations(self) -> None:
        flat = self.flat
        self.single("name", flat.name, self.strings, "string")
        self.names[flat.name] = True
        self.single("doc", flat.doc, self.strings, "string")
        if flat.over is not None:
            for axis, extent in enumerate(flat.extents):
                self.single("extents", extent, self.sizes, "size", axis)
        for column in ("dim_names", "param_names", "memory_names"):
            names = getattr(flat, column)
            if len(names) > MAX_DECLARATIONS:
                raise Fault("W107", f"{len(names)} declarations of one kind, at most {MAX_DECLARATIONS} are allowed", column, MAX_DECLARATIONS)
            self.naming(column, names)
        self.distinct_dims()
        self.members("param_types", IS_TYPE, "type")
        self.members("memory_types", IS_TYPE, "type")
        self.members("memory_spaces", IS_SPACE, "space")
        self.members("memory_access", IS_ACCESS, "access")
        for column, total, what in (("memory_ranks", flat.count("axes"), "axes"), ("data_lengths", flat.count("data_bytes"), "bytes of data")):
            found = int(getattr(flat, column).sum(dtype=np.uint64))
            if found != total:
                raise Fault("W103", f"the memories have {found} {what} together, the header counts {total}", column)
        self.below("axes", flat.axes, self.sizes, "size")

    def distinct_dims(self) -> None:
        """Dims are known by name, so that a size could not tell two of one name apart."""
        order = np.argsort(self.flat.dim_names, kind="stable")
        names = self.flat.dim_names[order]
        twice = _first(names[1:] == names[:-1])
        if twice >= 0:
            raise Fault("W109", "two dims have one name", "dim_names", int(order[twice + 1]), "give each dim a name of its own")

    # ---- statements

    def statements(self) -> None:
        flat = self.flat
        if len(flat.codes) > MAX_STATEMENTS:
            raise Fault("W107", f"{len(flat.codes)} statements, at most {MAX_STATEMENTS} are allowed", "codes", MAX_STATEMENTS)
        self.members("codes", IS_CODE, "statement")
        typed = TYPED[flat.codes]
        wrong = _first(np.where(typed, ~IS_TYPE[flat.types], flat.types != 0))
        if wrong < 0:
            return
        found = int(flat.types[wrong])
        if not typed[wrong]:
            raise Fault("W112", f"a type, {found}, at a statement that binds no value: it must be 0", "types", wrong)
        if found:
            raise Fault("W105", f"{found} is not a type", "types", wrong)
        raise Fault("W112", "a statement that binds a value or declares a variable has no type", "types", wrong, "give the type of what it binds")

    def references(self) -> None:
        """What statements refer to: memories, variables (a Var to the next one, others to one before), a region's name or a message."""
        flat, refs = self.flat, self.flat.refs
        kinds = REFERS[flat.codes]
        wrong = _first((kinds == 0) & (refs != 0))
        if wrong >= 0:
            raise Fault("W109", f"a reference, {int(refs[wrong])}, at a statement that has none: it must be 0", "refs", wrong)
        at = np.flatnonzero(kinds == REFERS_MEMORY)
        self.rows_below(at, flat.count("memories"), "memory")
        at = np.flatnonzero(kinds == REFERS_FUNCTION)
        self.rows_below(at, len(flat.functions), "function")
        at = np.flatnonzero(kinds == REFERS_STRING)
        self.rows_below(at, flat.count("strings"), "string")
        self.strings[refs[at]] = self.names[refs[at]] = True
        at = np.flatnonzero(kinds == REFERS_VARIABLE)
        declares = flat.codes[at] == CODES["var"]
        before = np.cumsum(declares) - declares
        wrong = _first(np.where(declares, refs[at] != before, refs[at] >= before))
        if wrong >= 0:
            said = f"variable {int(refs[at[wrong]])} is declared where {int(before[wrong])} is due" if declares[wrong] else (
                f"variable {int(refs[at[wrong]])} is used where {int(before[wrong])} are declared")
            raise Fault("W111", said, "refs", int(at[wrong]))
        wrong = _first((flat.codes == CODES["var"]) & (flat.counts != 1))
        if wrong >= 0:
            raise Fault("W112", f"a var with {int(flat.counts[wrong])} operands, not its first value alone", "counts", wrong)

    def rows_below(self, at: Array, limit: int, what: str) -> None:
        entries = self.flat.refs[at]
        wrong = _first(entries >= limit)
        if wrong >= 0:
            raise Fault("W106", f"{what} {int(entries[wrong])} where there are {limit}", "refs", int(at[wrong]))

    def nesting(self) -> None:
        codes = self.flat.codes
        closes = CLOSES[codes]
        depth = np.cumsum(OPENS[codes].astype(np.int32) - closes, dtype=np.int32)
        # A closing statement lowers its own depth; an Else stands one deep at least.
        wrong = _first((depth < 0) | ((codes == CODES["else"]) & (depth < 1)))
        if wrong >= 0:
            raise Fault("W110", f"this {'end' if closes[wrong] else 'else'} is in no block", "codes", wrong)
        wrong = _first(depth > MAX_NESTING)
        if wrong >= 0:
            raise Fault("W107", f"blocks are more than {MAX_NESTING} deep", "codes", wrong)
        if len(depth) and depth[-1]:
            opener = int(np.flatnonzero((depth == depth[-1]) & OPENS[codes])[-1])
            raise Fault("W110", f"{int(depth[-1])} block{'s are' if depth[-1] > 1 else ' is'} never closed", "codes", opener)

    def operands(self) -> None:
        """A value comes from a statement before; whether it is in scope is for `check`."""
        flat = self.flat
        total = int(flat.counts.sum(dtype=np.uint64))
        if total != len(flat.operands):
            raise Fault("W103", f"the statements have {total} operands together, the header counts {len(flat.operands)}", "counts")
        bound, start = 0, 0
        for row in range(0, len(flat.codes), _CHUNK):
            counts, binds = flat.counts[row : row + _CHUNK], BINDS[flat.codes[row : row + _CHUNK]]
            before = np.cumsum(binds, dtype=np.uint32) - binds + np.uint32(bound)
            stop = start + int(counts.sum(dtype=np.uint64))
            self.operand_rows(start, flat.operands[start:stop], np.repeat(before, counts))
            bound, start = bound + int(np.count_nonzero(binds)), stop

    def operand_rows(self, start: int, operands: Array, before: Array) -> None:
        kinds, rows = operands & 3, operands >> 2
        wrong = _first((kinds == OPERAND_KINDS["value"]) & (rows >= before))
        if wrong >= 0:
            raise Fault("W111", f"value {int(rows[wrong])} is used where {int(before[wrong])} are bound", "operands", start + wrong)
        params = np.zeros(self.flat.count("params"), np.bool_)
        for what, flags in (("constant", self.constants), ("param", params), ("size", self.sizes)):
            mine = kinds == OPERAND_KINDS[what]
            entries = rows[mine]
            if len(entries) and int(entries.max()) >= len(flags):
                at = _first(mine & (rows >= len(flags)))
                raise Fault("W106", f"{what} {int(rows[at])} where there are {len(flags)}", "operands", start + at)
            flags[entries] = True

    # ---- names and places

    def labels(self, rows: str, names: str, count: int, what: str) -> None:
        numbers = getattr(self.flat, rows)
        wrong = _first(numbers >= count)
        if wrong >= 0:
            raise Fault("W106", f"{what} {int(numbers[wrong])} has a name where there are {count}", rows, wrong)
        wrong = _first(numbers[1:] <= numbers[:-1])
        if wrong >= 0:
            raise Fault("W109", f"the {what}s that have names do not ascend", rows, wrong + 1)
        self.naming(names, getattr(self.flat, names))

    def places(self) -> None:
        flat = self.flat
        if not len(flat.places):
            return
        declared = 1 + flat.count("dims") + flat.count("params") + flat.count("memories")
        if len(flat.places) != declared + len(flat.codes):
            message = f"{len(flat.places)} places for {declared} declarations, the Program one of them, and {len(flat.codes)} statements"
            raise Fault("W103", message, "places")
        files = flat.places[:, 0]
        known = files != 0
        wrong = _first(~known & flat.places.any(axis=1))
        if wrong >= 0:
            raise Fault("W109", "a place without a file has a line, column or width: it must be 0", "places", wrong)
        if not known.any():
            raise Fault("W109", "no place is known, so it must be empty", "places")
        wrong = _first(files > len(self.strings))
        if wrong >= 0:
            raise Fault("W106", f"string {int(files[wrong]) - 1} where there are {len(self.strings)}", "places", wrong)
        self.strings[files[known] - 1] = True
        self.one_place_a_name(declared)

    def one_place_a_name(self, declared: int) -> None:
        """Declarations of one name, which `check` refuses, could not keep two places."""
        flat = self.flat
        names = np.concatenate((flat.dim_names, flat.param_names, flat.memory_names))
        order = np.argsort(names, kind="stable")
        places = flat.places[1:declared][order]
        same = names[order][1:] == names[order][:-1]
        wrong = _first(same & (places[1:] != places[:-1]).any(axis=1))
        if wrong >= 0:
            raise Fault("W109", "declarations of one name have two places", "places", 1 + int(order[wrong + 1]))

    # ---- tables

    def size_nodes(self) -> None:
        """Nodes are sizes, and ascend by height, kind, left and right."""
        columns = self.flat.size_columns
        parts = (zip(*[column[at : at + _CHUNK].tolist() for column in columns], strict=True) for at in range(0, len(columns[0]), _CHUNK))
        last = (-1, 0, 0, 0)
        for index, key in enumerate(ranked(chain.from_iterable(parts), self.flat.count("dims"))):
            if self.canonical and key <= last:
                raise Fault("W109", "the sizes do not ascend by height, kind, left and right", "size_ops", index)
            last = key
            if key[0]:
                self.sizes[key[2]] = self.sizes[key[3]] = True
        self.used("sizes", "size_ops", self.sizes)

    def constant_rows(self) -> None:
        types, bits = self.flat.constant_types, self.flat.constant_bits
        wrong = _first(~IS_SCALAR[types])
        if wrong >= 0 and IS_TYPE[types[wrong]]:
            raise Fault("W112", "a constant is a scalar, not a vector", "constant_types", wrong, "put a vector together by vec2, vec3 or vec4")
        if wrong >= 0:
            raise Fault("W105", f"{int(types[wrong])} is not a type", "constant_types", wrong)
        for start in range(0, len(bits), _CHUNK):
            part = slice(start, start + _CHUNK)
            wrong = _first(bits[part] & ~CONSTANT_MASKS[types[part]] != 0)
            if wrong >= 0:
                raise Fault("W112", f"the bits of a constant, {int(bits[start + wrong]):#x}, do not fit its type", "constant_bits", start + wrong)
        if self.canonical:
            wrong = _first((types[1:] < types[:-1]) | ((types[1:] == types[:-1]) & (bits[1:] <= bits[:-1])))
            if wrong >= 0:
                raise Fault("W109", "the constants do not ascend by type and bits", "constant_bits", wrong + 1)
        self.used("constants", "constant_types", self.constants)

    # ---- strings

    def text(self) -> None:
        """All strings together are UTF-8."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        text, at, pending = self.flat.text, 0, 0
        try:
            for at in range(0, len(text), _TEXT_CHUNK):
                pending = len(decoder.getstate()[0])
                decoder.decode(bytes(text[at : at + _TEXT_CHUNK]), at + _TEXT_CHUNK >= len(text))
        except UnicodeDecodeError as error:
            raise Fault("W108", f"the strings are not UTF-8: {error.reason}", "text", at - pending + error.start) from None

    def string_rows(self) -> None:
        """Each string begins with a character's first byte, so that all are UTF-8 when the text is; names are short; rows ascend."""
        flat, text = self.flat, self.flat.text
        total = int(flat.string_lengths.sum(dtype=np.uint64))
        if total != len(text):
            raise Fault("W103", f"the strings have {total} bytes together, the header counts {len(text)}", "string_lengths")
        at, last = 0, None
        for start in range(0, len(flat.string_lengths), _CHUNK):
            for index, length in enumerate(flat.string_lengths[start : start + _CHUNK].tolist(), start):
                if length and _CONTINUES[0] <= text[at] < _CONTINUES[1]:
                    raise Fault("W108", "a string begins inside a character", "text", at)
                if length > MAX_NAME and self.names[index] and not self.short(at, length):
                    raise Fault("W107", f"a name has more than {MAX_NAME} characters", "text", at)
                if self.canonical:
                    row = bytes(text[at : at + length])
                    if last is not None and row <= last:
                        raise Fault("W109", "the strings do not ascend", "string_lengths", index)
                    last = row
                at += length

    def short(self, at: int, length: int) -> bool:
        """Whether a string of more bytes than a name may have characters has so many characters at most; one has 4 bytes at most."""
        return length <= 4 * MAX_NAME and sum([not _CONTINUES[0] <= byte < _CONTINUES[1] for byte in self.flat.text[at : at + length]]) <= MAX_NAME
