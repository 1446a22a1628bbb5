"""LLVM IR as libNVVM takes it: a rewrite, line by line, of the text that the walk for GPUs writes.

Before compute_100 libNVVM is LLVM 7, which has typed pointers. A name has the pointee type of its definition; a bitcast precedes a use with another type.
Pointers come from parameters (as bytes), allocas, globals and address arithmetic, never from a phi or a select, and are defined above their uses. So one
table of names and one pass are enough. From compute_100 on pointers stay opaque.

Neither version takes atomic loads and stores, and not every version takes fences or atomic sums of floats. Those become inline PTX, which LLVM neither moves
nor repeats (`sideeffect`) and which may touch any memory.

The walk writes few forms of lines. Any other line raises ToolchainError: libNVVM might read it as something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from vyre_py.lowering.errors import ToolchainError
from vyre_py.lowering.llvm.gpu.nvvm.packed_words import words_of
from vyre_py.lowering.llvm.gpu.nvvm.replacements import (
    AS_IS,
    FLOATS,
    OLD_REPLACEMENTS,
    REGISTERS,
    REPLACEMENTS,
    Replacement,
)

__all__ = ["rewrite"]

_LAYOUT: Final = (
    "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-"
    "v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
)
_HEADS: Final = (f'target datalayout = "{_LAYOUT}"', 'target triple = "nvptx64-nvidia-cuda"')
# The versions of the language and of its debug information.
_VERSION: Final = "!{i32 2, i32 0, i32 3, i32 2}"

# Instructions without pointers, the same in both languages.
_PLAIN: Final = (
    "add sub mul udiv sdiv urem srem shl lshr ashr and or xor icmp fcmp fadd fsub fmul fdiv select phi trunc zext sext fptrunc fpext fptosi fptoui "
    "sitofp uitofp bitcast extractvalue extractelement insertelement shufflevector br ret unreachable"
)
_KEPT: Final = frozenset(_PLAIN.split())
# Attribute of a function that an option of the compiler's stands for, and the one that becomes a kernel's annotation.
_OPTIONAL: Final = "denormal-fp-math-f32"
_WORKGROUP: Final = "nvvm.reqntid"

# PTX's words for address spaces, for orders, which of each depend on the instruction, and for who sees an atomic.
_SPACES: Final[Mapping[str | None, str]] = {None: "", "1": ".global", "3": ".shared"}
_LOADS: Final[Mapping[str, str]] = {"monotonic": "relaxed", "acquire": "acquire"}
_STORES: Final[Mapping[str, str]] = {"monotonic": "relaxed", "release": "release"}
_FENCES: Final[Mapping[str, str]] = {"acquire": "acq_rel", "release": "acq_rel", "acq_rel": "acq_rel", "seq_cst": "sc"}
_SCOPES: Final[Mapping[str | None, str]] = {None: "sys", "device": "gpu", "block": "cta"}

_TYPE: Final = r"(<\d+ x \w+>|\[\d+ x \w+\]|\w+)"
_POINTER: Final = r"ptr(?: addrspace\((\d)\))? ([%@][\w.]+|getelementptr \(i8, ptr addrspace\(3\) @\w+, i64 \d+\))"
_IN_SHARED: Final = re.compile(r"getelementptr \(i8, ptr addrspace\(3\) (@\w+), i64 (\d+)\)")
_ALIGN: Final = r"((?:, align \d+)?)"
_SCOPE: Final = r'(?: syncscope\("(\w+)"\))?'
_ORDER: Final = r'(?: syncscope\("\w+"\))? monotonic'

# An instruction: its result, the whole of it, its name, and what is attached to it.
_INSTRUCTION: Final = re.compile(r"  (?:(%[\w.]+) = )?((\w+)(?: .*?)?)((?:, !\w+(?:\.\w+)* !\d+)*)")
_FUNCTION: Final = re.compile(
    r'define (ptx_kernel|internal) (\w+) @(\w+)\((.*)\)( alwaysinline| noinline nounwind)?((?: "[\w.-]+"="[^"]*")*)( !dbg !\d+)? \{'
)
_ATTRIBUTE: Final = re.compile(r'"([\w.-]+)"="([^"]*)"')
_PARAMETER: Final = re.compile(r"ptr(?: addrspace\((\d)\))?((?: \w+)*? (%[\w.]+))")
_GLOBAL: Final = re.compile(r'(@\w+) = (?:external|internal) addrspace\(\d\) (?:global|constant) (\[\d+ x i8\])(?: c".*")?, align \d+')
_METADATA: Final = re.compile(r"!(?:(\d+)|[\w.]+) = ")


def _pointer_type(pointee: str, space: str | None) -> str:
    return f"{pointee} addrspace({space})*" if space else f"{pointee}*"


class _Rewriter:
    """One module on its way: its lines, by where they go, and what is known of its pointers. `typed` says that these have pointees."""

    def __init__(self, text: str, typed: bool) -> None:
        self._text, self._typed = text, typed
        self._globals: list[str] = []
        self._declarations: set[str] = set()
        self._functions: list[str] = []
        self._metadata: list[str] = []
        self._numbers = 0  # of metadata so far
        self._annotations: list[str] = []
        # The pointees of globals; of the function that is being read, those of its pointers, how many names were made, and the loads that are frozen.
        self._arrays: dict[str, str] = {}
        self._pointees: dict[str, str] = {}
        self._made = 0
        self._frozen: set[str] = set()
        # The line that is being read, and what is attached to it.
        self._line = self._attached = ""

    def run(self) -> str:
        """The module in the other language."""
        inside = False
        for line in self._text.split("\n"):
            self._line = line
            if inside and line.startswith("  "):
                self._instruction()
            elif inside and (line == "}" or line.endswith(":")):
                self._functions.append(line)
                inside = line != "}"
            elif line.startswith("define "):
                self._function()
                inside = True
            else:
                self._outside()
        self._name_nodes("nvvmir.version", [_VERSION])
        self._name_nodes("nvvm.annotations", self._annotations)
        parts = (_HEADS, self._globals, sorted(self._declarations), self._functions, self._metadata)
        return "\n\n".join("\n".join(part) for part in parts if part) + "\n"

    def _unknown(self, what: str) -> ToolchainError:
        return ToolchainError("libNVVM", f"there is no form for {what}: {self._line.strip()}", self._text)

    # ---- outside of instructions

    def _outside(self) -> None:
        if found := _GLOBAL.fullmatch(self._line):
            self._arrays[found[1]] = found[2]
            self._globals.append(self._line)
        elif found := _METADATA.match(self._line):
            self._numbers = max(self._numbers, int(found[1] or 0) + 1)
            self._metadata.append(self._line)
        elif self._line and not self._line.startswith(("target ", "declare ")):  # both are written anew
            raise self._unknown("this line")

    def _name_nodes(self, name: str, nodes: list[str]) -> None:
        numbers = [f"!{self._numbers + k}" for k in range(len(nodes))]
        self._numbers += len(nodes)
        if nodes:
            self._metadata.append(f"!{name} = !{{{', '.join(numbers)}}}")
        self._metadata += [f"{number} = {node}" for number, node in zip(numbers, nodes, strict=True)]

    def _function(self) -> None:
        found = _FUNCTION.fullmatch(self._line)
        if found is None:
            raise self._unknown("this function")
        kind, result, name, given, inline, attributes, place = found.groups(default="")
        named = {key: value for key, value in _ATTRIBUTE.findall(attributes) if key != _OPTIONAL}
        size = named.pop(_WORKGROUP, "")
        if named:
            raise self._unknown(f"the attribute {next(iter(named))}")
        self._pointees, self._made, self._frozen = {}, 0, set()
        parameters = [self._parameter(text) for text in given.split(", ")] if given else []
        required = f' "{_WORKGROUP}"="{size}"' if size else ""
        if self._typed and kind == "ptx_kernel":
            axes = [f'!"reqntid{axis}", i32 {extent}' for axis, extent in zip("xyz", size.split(","), strict=True)] if size else []
            function = f"void ({', '.join(type_ for type_, _ in parameters)})* @{name}"
            words = ", ".join([function, '!"kernel", i32 1', *axes])
            self._annotations.append(f"!{{{words}}}")
            kind = required = ""
        head = " ".join(filter(None, ["define", kind, f"{result} @{name}({', '.join(map(''.join, parameters))})"]))
        self._functions.append(f"{head}{inline}{required}{place} {{")

    def _parameter(self, text: str) -> tuple[str, str]:
        """Its type, and all that follows."""
        found = _PARAMETER.fullmatch(text)
        if found is None or not self._typed:
            type_, blank, rest = text.partition(" ")
            return type_, blank + rest
        self._pointees[found[3]] = "i8"
        return _pointer_type("i8", found[1]), found[2]

    # ---- pointers

    def _pointer(self, space: str | None, name: str, pointee: str) -> str:
        """The operand, with its type, as a pointer to this type."""
        if not self._typed:
            return f"ptr addrspace({space}) {name}" if space else f"ptr {name}"
        held = self._arrays.get(name) or self._pointees.get(name, "")
        if found := _IN_SHARED.fullmatch(name):
            array = self._arrays.get(found[1], "")
            held, name = array and "i8", f"getelementptr ({array}, {_pointer_type(array, space)} {found[1]}, i64 0, i64 {found[2]})"
        if not held:
            raise self._unknown(f"the pointer {name}")
        given, wanted = _pointer_type(held, space), _pointer_type(pointee, space)
        if given == wanted:
            return f"{wanted} {name}"
        if not name.startswith("%"):
            return f"{wanted} bitcast ({given} {name} to {wanted})"
        self._made += 1
        self._put(f"%cast.{self._made} = bitcast {given} {name} to {wanted}")
        return f"{wanted} %cast.{self._made}"

    # ---- instructions

    def _put(self, instruction: str) -> None:
        self._functions.append(f"  {instruction}{self._attached}")

    def _instruction(self) -> None:
        found = _INSTRUCTION.fullmatch(self._line)
        if found is None:
            raise self._unknown("this line")
        result, text, name, self._attached = found.groups()
        for pattern, write in _HANDLERS.get(name, ()):
            if (parts := pattern.fullmatch(text)) is not None:
                write(self, result or "", parts)
                return
        if name not in _KEPT or "ptr " in text:
            raise self._unknown(f"this {name}")
        self._functions.append(self._line)

    def alloca(self, result: str, found: re.Match[str]) -> None:
        self._pointees[result] = found[1]
        self._put(f"{result} = {found[0]}")

    def element(self, result: str, found: re.Match[str]) -> None:
        type_, space, pointer, index = found.groups()
        self._put(f"{result} = getelementptr {type_}, {self._pointer(space, pointer, type_)}, i64 {index}")
        self._pointees[result] = type_

    def element_of_row(self, result: str, found: re.Match[str]) -> None:
        count, type_, space, pointer, row, place = found.groups()
        whole = f"[{count} x {type_}]"
        self._put(f"{result} = getelementptr {whole}, {self._pointer(space, pointer, whole)}, i64 {row}, i64 {place}")
        self._pointees[result] = type_

    def address(self, result: str, found: re.Match[str]) -> None:
        self._put(f"{result} = ptrtoint {self._pointer(found[1], found[2], 'i8')} to i64")

    def load(self, result: str, found: re.Match[str]) -> None:
        type_, space, pointer, align = found.groups()
        words = words_of(type_, align) if self._typed else None
        if words is None:
            self._put(f"{result} = load {type_}, {self._pointer(space, pointer, type_)}{align}")
            return
        self._put(f"{result}.words = load {words.type}, {self._pointer(space, pointer, words.type)}{align}")
        for line in words.take_apart(f"{result}.words", result):
            self._put(line)
        self._frozen.add(result)

    def store(self, result: str, found: re.Match[str]) -> None:
        type_, value, space, pointer, align = found.groups()
        if self._typed and (words := words_of(type_, align)) is not None:
            self._made += 1
            made = f"%made.{self._made}"
            for line in words.put_together(value, made):
                self._put(line)
            type_, value = words.type, made
        self._put(f"store {type_} {value}, {self._pointer(space, pointer, type_)}{align}")

    def load_atomic(self, result: str, found: re.Match[str]) -> None:
        type_, space, pointer, scope, order = found.groups()
        text = f"ld.{_LOADS[order]}.{_SCOPES[scope]}{_SPACES[space]}.b{type_.removeprefix('i')} $0, [$1];"
        self._atomic(result, text, type_, self._pointer(space, pointer, type_))

    def store_atomic(self, result: str, found: re.Match[str]) -> None:
        type_, value, space, pointer, scope, order = found.groups()
        text = f"st.{_STORES[order]}.{_SCOPES[scope]}{_SPACES[space]}.b{type_.removeprefix('i')} [$0], $1;"
        given = f"{self._pointer(space, pointer, type_)}, {type_} {value}"
        self._put(f'call void asm sideeffect "{text}", "l,{REGISTERS[type_]},~{{memory}}"({given})')

    def add_float(self, result: str, found: re.Match[str]) -> None:
        space, pointer, type_, value, scope = found.groups()
        text = f"atom.relaxed.{_SCOPES[scope]}{_SPACES[space]}.add.{FLOATS[type_][0]} $0, [$1], $2;"
        self._atomic(result, text, type_, self._pointer(space, pointer, type_), f"{type_} {value}")

    def _atomic(self, result: str, text: str, type_: str, pointer: str, *values: str) -> None:
        registers = ",".join([f"={REGISTERS[type_]}", "l", *[REGISTERS[type_] for _ in values], "~{memory}"])
        self._put(f'{result} = call {type_} asm sideeffect "{text}", "{registers}"({", ".join([pointer, *values])})')

    def change(self, result: str, found: re.Match[str]) -> None:
        """An atomic of integers. LLVM 7's are relaxed, and seen by the whole device, whatever the scope; it has no word for their alignment."""
        name, space, pointer, type_, value, order = found.groups()
        self._put(f"{result} = atomicrmw {name} {self._pointer(space, pointer, type_)}, {type_} {value}{' monotonic' if self._typed else order}")

    def exchange(self, result: str, found: re.Match[str]) -> None:
        space, pointer, type_, old, new, order = found.groups()
        order = " monotonic monotonic" if self._typed else order
        self._put(f"{result} = cmpxchg {self._pointer(space, pointer, type_)}, {type_} {old}, {type_} {new}{order}")

    def fence(self, result: str, found: re.Match[str]) -> None:
        self._put(f'call void asm sideeffect "fence.{_FENCES[found[2]]}.{_SCOPES[found[1]]};", "~{{memory}}"()')

    def memset(self, result: str, found: re.Match[str]) -> None:
        pointer, rest = found.groups()
        suffix, type_ = ("p0i8", "i8*") if self._typed else ("p0", "ptr")
        self._declarations.add(f"declare void @llvm.memset.{suffix}.i64({type_}, i8, i64, i1)")
        self._put(f"call void @llvm.memset.{suffix}.i64({self._pointer(None, pointer, 'i8')}, {rest})")

    def workgroup(self, result: str, found: re.Match[str]) -> None:
        """A call of a function of this module, whose pointers are to bytes."""
        arguments = [re.fullmatch(_POINTER, text) or text for text in found[2].split(", ")]
        given = [text if isinstance(text, str) else self._pointer(text[1], text[2], "i8") for text in arguments]
        self._put(f"call void @{found[1]}({', '.join(given)})")

    def function(self, result: str, found: re.Match[str]) -> None:
        """A call of a function of this module that takes and gives values."""
        self._put(f"{result} = {found[0]}")

    def assembly(self, result: str, found: re.Match[str]) -> None:
        self._put(found[0])

    # ---- values

    def simple(self, result: str, found: re.Match[str]) -> None:
        """An instruction over one operand that LLVM 7 lacks; over a vector, element by element."""
        name, type_, operand = found.groups()
        if not self._typed:
            self._put(f"{result} = {found[0]}")
            return
        if name == "freeze" and operand in self._frozen:
            self._put(f"{result} = bitcast {type_} {operand} to {type_}")
            return
        count, _, element = type_.strip("<>").rpartition(" x ")
        replacement = OLD_REPLACEMENTS.get(f"{name}.{element}") or OLD_REPLACEMENTS[name]
        if not count:
            self._replace(result, replacement, type_, [operand])
            return
        whole, last = "undef", int(count) - 1
        for k in range(last + 1):
            made = result if k == last else f"{result}.{k}"
            self._put(f"{made}.e = extractelement {type_} {operand}, i32 {k}")
            self._replace(f"{made}.v", replacement, element, [f"{made}.e"])
            self._put(f"{made} = insertelement {type_} {whole}, {element} {made}.v, i32 {k}")
            whole = made

    def intrinsic(self, result: str, found: re.Match[str]) -> None:
        type_, name, given = found.groups()
        arguments = [text.split(" ", 1) for text in given.split(", ")] if given else []
        names = (name, name.rpartition(".")[0])  # with the type that stands last, and without it
        tables = (REPLACEMENTS, OLD_REPLACEMENTS) if self._typed else (REPLACEMENTS,)
        replacement = next((table[key] for table in tables for key in names if key in table), None)
        if replacement is not None:
            operands = [value for argument, value in arguments if argument != "i1" or replacement.takes_bools]
            if replacement.is_rotation and operands[0] != operands[1]:
                raise self._unknown("a shift of two values")
            self._replace(result, replacement, type_, operands)
        elif not AS_IS.isdisjoint(names) or not OLD_REPLACEMENTS.keys().isdisjoint(names):
            self._declarations.add(f"declare {type_} @{name}({', '.join(argument for argument, _ in arguments)})")
            self._put(f"{result} = {found[0]}" if result else found[0])
        else:
            raise self._unknown(f"the intrinsic {name}")

    def _replace(self, result: str, replacement: Replacement, type_: str, operands: list[str]) -> None:
        fields = replacement.fields(result, type_, operands)
        try:
            lines = [line.format_map(fields) for line in replacement.lines]
        except KeyError:  # of what a template has, not every type has all
            raise self._unknown(f"the type {type_}") from None
        for line in lines:
            self._put(line)
        if replacement.declares:
            self._declarations.add(replacement.declares.format_map(fields))


_Write = Callable[[_Rewriter, str, "re.Match[str]"], None]
_INTEGER: Final = r"(i32|i64)"

# Instruction, what it looks like, what writes it. Words such as `volatile` and `inbounds` stand in none that does not name them.
_ROWS: Final[tuple[tuple[str, str, _Write], ...]] = (
    ("alloca", rf"alloca {_TYPE}{_ALIGN}", _Rewriter.alloca),
    ("getelementptr", rf"getelementptr {_TYPE}, {_POINTER}, i64 (\S+)", _Rewriter.element),
    ("getelementptr", rf"getelementptr \[(\d+) x {_TYPE}\], {_POINTER}, i64 (\S+), i64 (\S+)", _Rewriter.element_of_row),
    ("ptrtoint", rf"ptrtoint {_POINTER} to i64", _Rewriter.address),
    ("load", rf"load {_TYPE}, {_POINTER}{_ALIGN}", _Rewriter.load),
    ("load", rf"load atomic (?:volatile )?{_INTEGER}, {_POINTER}{_SCOPE} ({'|'.join(_LOADS)}), align \d+", _Rewriter.load_atomic),
    ("store", rf"store atomic {_INTEGER} (\S+), {_POINTER}{_SCOPE} ({'|'.join(_STORES)}), align \d+", _Rewriter.store_atomic),
    ("store", rf"store {_TYPE} (.+), {_POINTER}{_ALIGN}", _Rewriter.store),
    ("atomicrmw", rf"atomicrmw fadd {_POINTER}, (float|double) (.+?){_SCOPE} monotonic, align \d+", _Rewriter.add_float),
    ("atomicrmw", rf"atomicrmw (add|sub|u?min|u?max|and|or|xor|xchg) {_POINTER}, {_INTEGER} (\S+)({_ORDER}, align \d+)", _Rewriter.change),
    ("cmpxchg", rf"cmpxchg {_POINTER}, {_INTEGER} (\S+), \3 (\S+)({_ORDER} monotonic, align \d+)", _Rewriter.exchange),
    ("fence", rf"fence{_SCOPE} ({'|'.join(_FENCES)})", _Rewriter.fence),
    ("freeze", rf"(freeze) {_TYPE} (\S+)", _Rewriter.simple),
    ("fneg", rf"(fneg) {_TYPE} (\S+)", _Rewriter.simple),
    ("fpext", r"(fpext) (half) (\S+) to float", _Rewriter.simple),
    ("fptrunc", r"(fptrunc) (float) (\S+) to half", _Rewriter.simple),
    ("call", r"call void @llvm\.memset\.p0\.i64\(ptr (%[\w.]+), (i8 0, i64 \d+, i1 false)\)", _Rewriter.memset),
    ("call", r"call void @((?!llvm\.)\w+)\((.*)\)", _Rewriter.workgroup),
    ("call", r"call \w+ @(?:fn|def)_\w+\((?:(?!ptr ).)*\)", _Rewriter.function),
    ("call", r'call void asm sideeffect "[^"]*", "[^"]*"\((?:(?!ptr ).)*\)', _Rewriter.assembly),
    ("call", r"call (\w+) @(llvm\.[\w.]+)\(((?:(?!ptr ).)*)\)", _Rewriter.intrinsic),
)
_HANDLERS: Final[Mapping[str, tuple[tuple[re.Pattern[str], _Write], ...]]] = {
    name: tuple((re.compile(form), write) for other, form, write in _ROWS if other == name) for name in {name for name, _, _ in _ROWS}
}


def rewrite(text: str, *, typed: bool) -> str:
    """The text of a module, as the walk for GPUs writes it, in libNVVM's language, with `typed` pointers for architectures before compute_100. Takes
    time linear in its length. Raises ToolchainError that names what there is no form for."""
    return _Rewriter(text, typed).run()
