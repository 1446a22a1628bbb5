"""A machine for PTX as compilers write it, a thread after the other: what a GPU would compute, where there is none.

It reads a module's text and runs one of its kernels over arrays of the host, exactly (`ptx_arithmetic`). Threads meet at barriers, those of a warp in
shuffles, votes and their like, to which all that a mask names have to come, and they take turns at relaxed loads, where they wait for one another. Each
access is looked at: it must be aligned, and lie within memory that there is.
Instructions that approximate are not among those it knows. For small grids only: a thread makes some 300,000 steps a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from heard import Heard
from ptx_arithmetic import (
    FLOATS,
    bits_of,
    changed,
    compared,
    computed,
    converted,
    extracted,
    funnel_shifted,
    inserted,
    permuted,
    taken,
)
from warp import WARP, Exchanged, exchanged

from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.ir.language.nodes import Param
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.artifact.parts import Entry
from vyre_py.lowering.layout import SlotKind
from vyre_py.lowering.lowered import Lowered
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.views import layout_of

__all__ = ["Kernel", "run"]

Registers = dict[str, Any]
Step = Callable[[Registers], Any]

_WORD = (1 << 64) - 1
# An address is the number of a block and a place in it.
_BLOCK = 40
_SHARED, _LOCAL, _TABLES, _ARRAYS = 1, 2, 3, 100
# How often a thread may look for what another one does.
_LOOKS = 10_000
_PERSISTENT = 2  # workgroups that a persistent kernel is launched with

_ENTRY = re.compile(r"\.entry (\w+)\((.*?)\)\s*(?:\.\w+[^\n{]*\n)*\{(.*?)^\}", re.DOTALL | re.MULTILINE)
_TABLE = re.compile(r"\.global [^;{]*?\.b8 (\w+)\[(\d+)\](?: = \{([^}]*)\})?;")
_LINE = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.]*)(?:\s+(.*))?;")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")


# ---------------------------------------------------------------- a kernel


class Kernel:
    """One kernel of a module, ready to run."""

    def __init__(self, ptx: str, symbol: str) -> None:
        ptx = re.sub(r"//[^\n]*", "", ptx)
        self.memory: dict[int, Any] = {}
        self._symbols: dict[str, int] = {"shared": _SHARED << _BLOCK}
        for number, (name, size, data) in enumerate(_TABLE.findall(ptx), _TABLES):
            assert number < _ARRAYS
            self._symbols[name] = number << _BLOCK
            values = [int(v, 0) for v in data.split(",")] if data else []
            self.memory[number] = bytearray(values + [0] * (int(size) - len(values)))
        body = next(found[3] for found in _ENTRY.finditer(ptx) if found[1] == symbol)
        depot = re.search(r"\.local [^;]*?(__local_depot\d+)\[(\d+)\];", body)
        self._local_bytes = int(depot[2]) if depot else 0
        if depot:
            self._symbols[depot[1]] = _LOCAL << _BLOCK
        statements = [s.strip() for s in re.sub(r"([;{}:])", r"\1\n", re.sub(r"\{([^{};:\n]*)\}", r"<\1>", body)).splitlines()]
        self._labels: dict[str, int] = {}
        self._steps: list[Step] = []
        for text in [s.replace("<", "{").replace(">", "}") if "<" in s else s for s in statements]:
            if text.endswith(":"):
                self._labels[text[:-1]] = len(self._steps)
            elif text and text not in "{}" and not text.startswith("."):
                self._steps.append(self._step(text))
        self._slots: Sequence[int] = ()
        self._block = b""

    # ---- decoding: an instruction becomes a function of the registers, which gives the number of the next one where it jumps, and a word where it stops

    def _step(self, text: str) -> Step:
        found = _LINE.fullmatch(text)
        assert found is not None, text
        negated, guard, name, rest = found.groups()
        step = self._decoded(name, _OPERAND.findall(rest or ""))
        if guard is None:
            return step
        wanted = 0 if negated else 1
        return lambda r: step(r) if r[guard] == wanted else None

    def _decoded(self, name: str, operands: list[str]) -> Step:
        parts = name.split(".")
        handler = getattr(self, f"_{parts[0]}", None)
        step: Step | None = handler(parts, operands) if handler is not None else None
        return step if step is not None else self._plain(parts, operands)

    def _given(self, text: str) -> Callable[[Registers], int]:
        if text.startswith("%"):
            return lambda r: r[text]
        if text in self._symbols:
            number = self._symbols[text]
        elif text.startswith(("0f", "0d")):
            number = int(text[2:], 16)
        else:
            number = int(text.rstrip("U"), 0)
        return lambda r: number

    def _assigned(self, target: str, compute: Callable[..., int], operands: Sequence[str]) -> Step:
        given = [self._given(text) for text in operands]

        def step(r: Registers) -> None:
            r[target] = compute(*[g(r) for g in given]) & _WORD

        return step

    def _plain(self, parts: list[str], operands: list[str]) -> Step:
        return self._assigned(operands[0], computed(parts), operands[1:])

    def _mov(self, parts: list[str], operands: list[str]) -> Step | None:
        target, source = operands
        if target.startswith("{"):
            names = [n.strip() for n in target.strip("{}").split(",")]
            width, given = bits_of(parts[-1]) // len(names), self._given(source)

            def unpack(r: Registers) -> None:
                whole = given(r)
                for k, name in enumerate(names):
                    r[name] = whole >> k * width & (1 << width) - 1

            return unpack
        if source.startswith("{"):
            names = [n.strip() for n in source.strip("{}").split(",")]
            width = bits_of(parts[-1]) // len(names)
            return self._assigned(target, lambda *x: sum((v & (1 << width) - 1) << k * width for k, v in enumerate(x)), names)
        return None

    def _cvt(self, parts: list[str], operands: list[str]) -> Step:
        assert "ftz" not in parts and "sat" not in parts, parts
        target, source = parts[-2:]
        take, rounding = (lambda x: x) if source not in FLOATS else taken(f"u{bits_of(source)}"), parts[1]
        if target.endswith("x2"):
            half = partial(converted, rounding, target.removesuffix("x2"), source)
            return self._assigned(operands[0], lambda high, low: half(take(high)) << 16 | half(take(low)), operands[1:])
        return self._assigned(operands[0], lambda x: converted(rounding, target, source, take(x)), operands[1:])

    def _setp(self, parts: list[str], operands: list[str]) -> Step:
        both, compare = parts[2:-1], compared(parts[1], parts[-1])
        assert both in ([], ["and"]), parts
        return self._assigned(operands[0], (lambda a, b, p: compare(a, b) & p) if both else compare, operands[1:])

    def _selp(self, parts: list[str], operands: list[str]) -> Step:
        return self._assigned(operands[0], lambda a, b, p: a if p else b, operands[1:])

    def _bfi(self, parts: list[str], operands: list[str]) -> Step:
        return self._assigned(operands[0], inserted(bits_of(parts[-1])), operands[1:])

    def _bfe(self, parts: list[str], operands: list[str]) -> Step:
        return self._assigned(operands[0], extracted(parts[-1]), operands[1:])

    def _prmt(self, parts: list[str], operands: list[str]) -> Step:
        return self._assigned(operands[0], permuted, operands[1:])

    def _shf(self, parts: list[str], operands: list[str]) -> Step:
        assert parts[2:] == ["wrap", "b32"], parts
        return self._assigned(operands[0], funnel_shifted(parts[1] == "l"), operands[1:])

    def _bra(self, parts: list[str], operands: list[str]) -> Step:
        return lambda r: self._labels[operands[0]]

    def _ret(self, parts: list[str], operands: list[str]) -> Step:
        return lambda r: "end"

    _exit = _ret

    def _bar(self, parts: list[str], operands: list[str]) -> Step:
        if parts[1] == "warp":  # it stands before a barrier, where all meet
            return lambda r: None
        return lambda r: "meet"

    def _fence(self, parts: list[str], operands: list[str]) -> Step:
        return lambda r: None

    def _cp(self, parts: list[str], operands: list[str]) -> Step:
        """A copy lands when its thread waits for it, no earlier; `%copies` are the thread's groups, the last of them open."""
        assert parts[1] == "async", parts
        if parts[2] == "commit_group":
            return lambda r: r["%copies"].append([])
        if parts[2] in ("wait_group", "wait_all"):
            left = 1 + int(operands[0]) if operands else 0

            def wait(r: Registers) -> None:
                landing = r["%copies"][: len(r["%copies"]) - left]
                for block, at, data in [copy for group in landing for copy in group]:
                    block[at : at + len(data)] = data
                r["%copies"] = r["%copies"][len(landing) :] or [[]]

            return wait
        size, target, source = int(operands[2]), self._place(operands[0]), self._place(operands[1])
        given = self._given(operands[3]) if len(operands) > 3 else lambda r: size

        def begin(r: Registers) -> None:
            to = _SHARED << _BLOCK | target(r) & (1 << _BLOCK) - 1  # by an address of workgroup memory, which has 32 bits
            (block, at), count = self._bytes(r, to, size), given(r)
            data = b""
            if count:
                whole, first = self._bytes(r, source(r), count)
                data = bytes(whole[first : first + count])
            assert count in (0, size) and block is r["%shared"]
            r["%copies"][-1].append((block, at, data.ljust(size, b"\0")))

        return begin

    # ---- warps

    def _exchange(self, parts: list[str], operands: list[str]) -> Step:
        """The last operand is the mask of those that take part. Whether a shuffle had such a lane is in a register that nothing may read."""
        assert "sync" in parts, parts
        unsigned = parts[0] == "redux" and parts[-1] == "u32" and parts[2] in ("min", "max")
        name = ".".join([*parts[:2], "u" + parts[2]] if unsigned else parts[:-1])
        compute, bits, target = exchanged(name), 1 if parts[-1] == "pred" else bits_of(parts[-1]), operands[0].partition("|")[0]
        given = [self._given(text) for text in operands[1:]]

        def step(r: Registers) -> _Exchange:
            value, *rest, mask = [g(r) for g in given]
            return _Exchange((name, tuple(operands), mask & 0xFFFFFFFF), [value & (1 << bits) - 1, *rest], compute, r, target)

        return step

    _shfl = _vote = _match = _redux = _exchange

    def _activemask(self, parts: list[str], operands: list[str]) -> Step:
        """Those of the warp that have come here when nobody of the workgroup goes on by himself."""
        return lambda r: _Exchange((parts[0], tuple(operands), 0), [], lambda lane, of: sum(1 << k for k in of), r, operands[0])

    # ---- memory

    def _place(self, text: str) -> Callable[[Registers], int]:
        base, _, offset = text.strip("[]").partition("+")
        if base.startswith("%") or base in self._symbols:
            given, more = self._given(base), int(offset or 0)
            return lambda r: given(r) + more & _WORD
        slot, more = int(base.rsplit("_", 1)[1]), int(offset or 0)
        return lambda r: self._slots[slot] + more

    def _bytes(self, r: Registers, address: int, size: int) -> tuple[Any, int]:
        number, at = address >> _BLOCK, address & (1 << _BLOCK) - 1
        block = r["%local"] if number == _LOCAL else r["%shared"] if number == _SHARED else self.memory.get(number)
        assert block is not None and at + size <= len(block), f"an access to {address:#x} lies outside all memory"
        assert at % size == 0, f"an access to {address:#x} is not aligned"
        return block, at

    def _ld(self, parts: list[str], operands: list[str]) -> Step:
        type_, names = parts[-1], [n.strip() for n in operands[0].strip("{}").split(",")]
        size, place, take = bits_of(type_) // 8, self._place(operands[1]), (lambda x: x) if type_ in FLOATS else taken(type_)
        if "param" in parts:

            def read(r: Registers) -> None:
                at = place(r)
                r[names[0]] = int.from_bytes(self._block[at : at + size], "little")

            return read
        stop = "look" if "relaxed" in parts else None

        def load(r: Registers) -> Any:
            block, at = self._bytes(r, place(r), size * len(names))
            for k, name in enumerate(names):
                r[name] = take(int.from_bytes(block[at + k * size : at + (k + 1) * size], "little")) & _WORD
            return stop

        return load

    def _st(self, parts: list[str], operands: list[str]) -> Step:
        names = [self._given(n.strip()) for n in operands[1].strip("{}").split(",")]
        size, place = bits_of(parts[-1]) // 8, self._place(operands[0])

        def store(r: Registers) -> None:
            block, at = self._bytes(r, place(r), size * len(names))
            for k, given in enumerate(names):
                block[at + k * size : at + (k + 1) * size] = (given(r) & (1 << 8 * size) - 1).to_bytes(size, "little")

        return store

    def _atom(self, parts: list[str], operands: list[str]) -> Step:
        name, type_ = parts[-2:]
        size, place, take = bits_of(type_) // 8, self._place(operands[1]), taken(f"u{bits_of(type_)}") if type_ in FLOATS else taken(type_)
        given = [self._given(text) for text in operands[2:]]
        change = changed(name, type_)

        def step(r: Registers) -> None:
            block, at = self._bytes(r, place(r), size)
            old = take(int.from_bytes(block[at : at + size], "little"))
            block[at : at + size] = (change(old, *[take(g(r)) for g in given]) & (1 << 8 * size) - 1).to_bytes(size, "little")
            r[operands[0]] = old & _WORD

        return step

    def _red(self, parts: list[str], operands: list[str]) -> Step:
        """An atomic whose old value nobody gets, of one element or of several that follow one another from a multiple of their size on."""
        values = [text.strip() for text in operands[1].strip("{}").split(",")]
        size, whole = bits_of(parts[-1]) // 8, self._place(operands[0])
        base, _, offset = operands[0].strip("[]").partition("+")
        one_of = [part for part in parts if part != "v4"]
        steps = [self._atom(one_of, ["%old", f"[{base}+{int(offset or 0) + size * k}]", text]) for k, text in enumerate(values)]

        def step(r: Registers) -> None:
            self._bytes(r, whole(r), size * len(values))
            for one in steps:
                one(r)

        return step

    # ---- running

    def launch(self, block: bytes, slots: Sequence[int], grid: Sequence[int], workgroup: Sequence[int], shared_bytes: int) -> None:
        """Runs the kernel; `block` holds its parameters, each from one of `slots` on."""
        self._block, self._slots = block, slots
        groups = []
        for z, y, x in np.ndindex(*reversed(tuple(grid))):
            place: dict[str, Any] = {"%ctaid.x": x, "%ctaid.y": y, "%ctaid.z": z} | {f"%nctaid.{a}": n for a, n in zip("xyz", grid, strict=True)}
            place["%shared"] = bytearray(b"\xa5" * shared_bytes)  # it holds anything at all
            tids = enumerate(np.ndindex(*reversed(tuple(workgroup))))
            groups.append([_Thread(self._run(place | {"%tid.x": i, "%tid.y": j, "%tid.z": k, "%laneid": number % WARP}), number) for number, (k, j, i) in tids])
        while groups := [group for group in map(_turn, groups) if group]:
            pass

    def _run(self, r: Registers) -> Iterator[str | _Exchange]:
        r |= {"%clock": 1, "%copies": [[]], "%local": bytearray(self._local_bytes)}
        at, steps = 0, self._steps
        while True:
            found = steps[at](r)
            at += 1
            if found is None:
                continue
            if found == "end":
                return
            if isinstance(found, (str, _Exchange)):
                yield found
            else:
                at = found


@dataclass
class _Exchange:
    """What a thread waits with for the others of its warp that the mask names: the instruction, its operands, what it computes, and where that goes."""

    what: tuple[str, tuple[str, ...], int]
    values: list[int]
    compute: Exchanged
    registers: Registers
    target: str


@dataclass
class _Thread:
    """A thread on its way, by its number in the workgroup: what it waits for, "meet" at a barrier or others of its warp, and how often it has looked for a
    change."""

    run: Iterator[str | _Exchange]
    number: int
    why: str | _Exchange = ""
    looks: int = 0


def _exchange(group: list[_Thread]) -> None:
    """Lets the threads go on whose warps are complete in an instruction."""
    waiting: dict[tuple[int, Any], dict[int, _Thread]] = {}
    for thread in group:
        if isinstance(thread.why, _Exchange):
            waiting.setdefault((thread.number // WARP, thread.why.what), {})[thread.number % WARP] = thread
    for (_, (name, _, mask)), threads in waiting.items():
        named = {lane for lane in range(WARP) if mask >> lane & 1} or threads.keys()
        assert threads.keys() <= named, f"{name} of threads that its mask {mask:#x} does not name"
        if threads.keys() != named:
            continue
        exchanges = {lane: thread.why for lane, thread in threads.items()}
        of = {lane: exchange.values for lane, exchange in exchanges.items() if isinstance(exchange, _Exchange)}
        for lane, exchange in exchanges.items():
            assert isinstance(exchange, _Exchange)  # it is waiting
            exchange.registers[exchange.target] = exchange.compute(lane, of) & 0xFFFFFFFF
            threads[lane].why = ""


def _turn(group: list[_Thread]) -> list[_Thread]:
    """Runs the threads of a workgroup that don't wait at a barrier until they do, have looked or have ended; gives those that have not ended."""
    for thread in group:
        if thread.why != "meet" and not isinstance(thread.why, _Exchange):
            thread.why = next(thread.run, "end")
            thread.looks += thread.why == "look"
            assert thread.looks < _LOOKS, "a thread waits for ever"
    left = [thread for thread in group if thread.why != "end"]
    waited = sum(isinstance(thread.why, _Exchange) for thread in left)
    _exchange(left)
    stuck = waited == len(left) and waited == sum(isinstance(thread.why, _Exchange) for thread in left)
    assert not stuck or not left, "threads wait for others of their warps for ever"
    if all(thread.why == "meet" for thread in left):
        for thread in left:
            thread.why = ""
    return left


def run(
    lowered: Lowered, entry: Entry, prepared: Optimised, options: CompileOptions, arguments: Mapping[str, Any], sizes: Mapping[str, int],
    heard: Heard | None = None,
) -> None:  # fmt: skip
    """Runs an entry of a Program that was made for PTX, writing arrays in place: `arguments` by name, as the interpreter takes them. `heard` takes up
    what it tells."""
    program, kernel, layout = prepared.program, Kernel(lowered.text, entry.symbol), layout_of(prepared, options)
    block = bytearray(layout.size_bytes)
    extents = [evaluate_dim(e, sizes) for e in program.grid.extents]
    grid = [-(-e // w) if program.grid.over else e for e, w in zip(extents, program.workgroup, strict=True)]
    if entry.elements > 1:
        full, left = divmod(extents[0], program.workgroup[0] * entry.elements)
        grid[0] = full - (-left // program.workgroup[0])
    for number, slot in enumerate(layout.slots):
        if slot.kind is SlotKind.BUFFER:
            kernel.memory[_ARRAYS + number] = memoryview(arguments[slot.name].reshape(-1).view(np.uint8))  # no copy of what is contiguous
            data = (_ARRAYS + number << _BLOCK).to_bytes(8, "little")
        elif slot.kind is SlotKind.PARAM:
            name, begin = (slot.name, 0) if slot.name in arguments else slot.source
            value = arguments[name]
            whole = np.asarray(value).tobytes() if isinstance(value, (np.generic, np.ndarray)) else encode_param(Param(name, slot.type), value)
            data = whole[begin : begin + slot.type.size_bytes]
        elif slot.kind in (SlotKind.ARRIVALS, SlotKind.CANCEL):
            kernel.memory[_ARRAYS + number] = bytearray(slot.size_bytes)
            data = (_ARRAYS + number << _BLOCK).to_bytes(8, "little")
        elif slot.kind is SlotKind.SCANS:
            kernel.memory[_ARRAYS + number] = bytearray(8 * (1 + entry.details["scan_words"] * int(np.prod(grid))))
            data = (_ARRAYS + number << _BLOCK).to_bytes(8, "little")
        elif slot.kind is SlotKind.REPORT:
            assert heard is not None
            kernel.memory[_ARRAYS + number] = memoryview(heard.memory(slot).view(np.uint8))
            data = (_ARRAYS + number << _BLOCK).to_bytes(8, "little")
        elif slot.kind is SlotKind.GROUPS:
            data = grid[slot.axis].to_bytes(4, "little")
        elif slot.kind is SlotKind.GRID:
            kernel.memory[_ARRAYS + number] = bytearray(np.array(grid, np.uint32).tobytes())
            data = (_ARRAYS + number << _BLOCK).to_bytes(8, "little")
        else:
            data = evaluate_dim(slot.expr, sizes).to_bytes(slot.size_bytes, "little")
        block[slot.offset_bytes : slot.offset_bytes + len(data)] = data
    if options.walks and 0 not in grid:
        grid = [_PERSISTENT, 1, 1]
    kernel.launch(bytes(block), [slot.offset_bytes for slot in layout.slots], grid, program.workgroup, lowered.workgroup_bytes)
    if heard is not None:
        heard.finish(grid)
