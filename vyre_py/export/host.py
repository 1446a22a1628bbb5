"""Host code for C: the object itself, whose symbols get names of their own, and a function that runs the grid in the calling thread."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from vyre_py.export.arguments import Arguments, Limits
from vyre_py.lowering.artifact.parts import Step
from vyre_py.lowering.llvm.cpu.elf import read_elf, refuse
from vyre_py.lowering.llvm.cpu.host_targets import MAX_ELEMENTS

__all__ = ["LIMITS", "example", "functions", "renamed", "source"]

LIMITS: Final = Limits((2**32 - 1,) * 3, MAX_ELEMENTS)
# Scratch memory up to this size is on the stack.
_STACK_BYTES: Final = 16 << 10
_MAX_SCRATCH_BYTES: Final = 1 << 40  # as the CPU device
_ALIGN: Final = 64

_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMTAB: Final = 2
_SYMBOL_BYTES: Final = 24


def renamed(code: bytes, names: Mapping[str, str]) -> bytes:
    """An ELF object with other names for some of the symbols that it defines: every object defines the same ones, and a program may link several.

    The names are put behind the old ones, in a copy of their section at the end of the file. Raises ToolchainError for bytes that are no object, and for a
    symbol that it does not define.
    """
    found = read_elf(code)
    made = bytearray(code)
    (table,) = struct.unpack_from("<Q", code, 0x28)
    (count,) = struct.unpack_from("<H", code, 0x3C)
    headers = [_SECTION.unpack_from(code, table + k * _SECTION.size) for k in range(count)]
    symbols = next(header for header in headers if header[1] == _SYMTAB)
    place = table + symbols[6] * _SECTION.size  # the header of the section of their names
    texts = bytearray(found.names)
    for old, new in names.items():
        number = found.symbols.index(found.find(old))
        struct.pack_into("<I", made, symbols[4] + number * _SYMBOL_BYTES, len(texts))
        texts += new.encode("ascii") + b"\0"
    if len(texts) >= 1 << 32:
        refuse("its names are too long")
    row = list(headers[symbols[6]])
    row[4], row[5] = len(made), len(texts)
    _SECTION.pack_into(made, place, *row)
    return bytes(made + texts)


def functions(name: str) -> str:
    """What the source defines."""
    return f"""\
/* Runs the whole grid in the calling thread. Any number of threads may be in here at once. */
int {name}_run(const {name}_arguments_t *arguments);"""


def example(arguments: Arguments) -> list[str]:
    """Its use."""
    name = arguments.name
    return [
        *arguments.example(), f"int status = {name}_run(&arguments);", "",
        f"cc -std=c99 -O2 main.c {name}.c {name}_kernel.o -lm",
    ]  # fmt: skip


def source(arguments: Arguments, step: Step, symbols: Mapping[str, str]) -> str:
    """The C source; `symbols` are the names that the entries have in the object."""
    name = arguments.name
    kernels = [symbols[entry.symbol] for entry in step.entries]
    declared = "\n".join([
        f"extern void {kernel}(const void *arguments, void *scratch, int64_t first, int64_t end, uint32_t x, uint32_t y, uint32_t z);"
        for kernel in dict.fromkeys(kernels)
    ])  # fmt: skip
    cases = "\n".join([
        f"    case {number}:\n        {kernel}(plan->block.bytes, scratch, 0, total, (uint32_t)plan->groups[0], (uint32_t)plan->groups[1], "
        f"(uint32_t)plan->groups[2]);\n        break;"
        for number, kernel in enumerate(kernels)
    ])  # fmt: skip
    return f"""\
#include "{name}.h"

#include <stdlib.h>
#include <string.h>

/* In {name}_kernel.o. */
{declared}

{arguments.plan()}

static void {name}_call(const {name}_plan_t *plan, void *scratch, int64_t total)
{{
    switch (plan->entry) {{
{cases}
    }}
}}

int {name}_run(const {name}_arguments_t *arguments)
{{
    {name}_plan_t plan;
    int status = {name}_plan(arguments, &plan);
    int64_t total;
    if (status != VYRE_OK)
        return status;
    total = (int64_t)(plan.groups[0] * plan.groups[1] * plan.groups[2]);
    if (total == 0)
        return VYRE_OK;
{_scratch(name, _scratch_bytes(step))}
    return VYRE_OK;
}}
"""


def _scratch_bytes(step: Step) -> int:
    """What all entries make do with. Raises ToolchainError where one says nothing useful."""
    most = max(entry.details.get("scratch_bytes", -1) for entry in step.entries)
    least = min(entry.details.get("scratch_bytes", -1) for entry in step.entries)
    if not 0 <= least <= most <= _MAX_SCRATCH_BYTES:
        refuse(f"its entries say nothing useful of their scratch memory: {least} to {most} bytes")
    return most


def _scratch(name: str, size_bytes: int) -> str:
    """The call, with scratch memory around it."""
    if not size_bytes:
        return f"    {name}_call(&plan, NULL, total);"
    aligned = f"(void *)(((uintptr_t)room + {_ALIGN - 1}) & ~(uintptr_t){_ALIGN - 1})"
    if size_bytes <= _STACK_BYTES:
        return f"""\
    {{
        unsigned char room[{size_bytes + _ALIGN - 1}];
        {name}_call(&plan, {aligned}, total);
    }}"""
    return f"""\
    {{
        void *room = malloc({size_bytes + _ALIGN - 1});
        if (room == NULL)
            return VYRE_ERROR_MEMORY;
        {name}_call(&plan, {aligned}, total);
        free(room);
    }}"""
