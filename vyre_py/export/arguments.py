"""Arguments in C: the struct that a caller fills, and the function that binds it, as binding does in Python (`drivers/binding.py`). Both follow the interface,
the layout and the limits of sizes; the checks are written in each language, since Python's name every mismatch and C's give the first one's status.

It solves the dims from the shapes and compares every other axis; refuses sizes that the code does not take, and memory that is not there, not aligned, or
overlaps what is written; computes the grid, chooses the entry, and packs the argument block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from vyre_py.export.names import Names, commented
from vyre_py.export.sizes import Sizes
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import GROUPS_LIMIT, SIZE_LIMIT, WORD_LIMIT, Dim, DimExpr, DimOp, dims_of
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.language.types import Type
from vyre_py.ir.text.declaration_printer import print_dim
from vyre_py.lowering.artifact.parts import Aligned, Entry, Interface, Step, Within
from vyre_py.lowering.layout import Slot, SlotKind

__all__ = ["Arguments", "Limits"]

# Type of a component -> C's. Floats of 8 and 16 bits go as their bits.
_C_TYPES: Final[Mapping[str, str]] = {
    "bool": "uint8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t",
    "u64": "uint64_t", "f8e4m3": "uint8_t", "f8e5m2": "uint8_t", "f16": "uint16_t", "bf16": "uint16_t", "f32": "float",
    "f64": "double",
}  # fmt: skip
_SPELLED: Final[Mapping[str, str]] = {"bool": "0 is false", **dict.fromkeys(("f8e4m3", "f8e5m2", "f16", "bf16"), "as its bits")}

_COUNT: Final = """\
/* How many components an array has, of which no axis may have more than all may have; 0 where it has too many. */
static int size_count(const uint64_t *shape, unsigned rank, uint64_t lanes, uint64_t most, uint64_t *count)
{
    unsigned axis;
    int empty = 0;
    *count = lanes;
    for (axis = 0; axis < rank; axis++) {
        if (shape[axis] > most)
            return 0;
        empty |= shape[axis] == 0;
    }
    for (axis = 0; axis < rank && !empty; axis++) {
        if (*count > most / shape[axis])
            return 0;
        *count *= shape[axis];
    }
    if (empty)
        *count = 0;
    return 1;
}"""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the machine takes: workgroups along x, y, z, and components of one buffer."""

    workgroups: tuple[int, int, int]
    elements: int


def _u64(value: int) -> str:
    return f"UINT64_C({value})"


class Arguments:
    """The arguments of one step of a Program. `name` is what all names in C begin with, `address` the C type of a buffer's address on a GPU, or None
    where buffers are plain pointers."""

    def __init__(self, name: str, interface: Interface, step: Step, limits: Limits, address: str | None = None) -> None:
        self.name, self.interface, self.step, self.limits, self._address = name, interface, step, limits, address
        names = Names()
        self.buffers = {memory.name: names.take(memory.name, "_shape") for memory in interface.buffers}
        self.params = {param.name: names.take(param.name) for param in interface.params}
        self._solved = self._sources()
        self.dims = {dim.name: names.take(dim.name) for dim in interface.dims if dim.name not in self._solved}
        self._sizes = Sizes(interface.dims)
        self._lines: list[str] = []

    def _sources(self) -> dict[str, tuple[Memory, int]]:
        """The first axis that each dim stands alone as."""
        found: dict[str, tuple[Memory, int]] = {}
        for memory in self.interface.buffers:
            for axis, expr in enumerate(memory.shape):
                if isinstance(expr, Dim):
                    found.setdefault(expr.name, (memory, axis))
        return found

    # ---- the struct

    def declaration(self) -> Iterator[str]:
        """The struct's type."""
        yield f"typedef struct {self.name}_arguments {{"
        for memory in self.interface.buffers:
            shape = ", ".join(map(print_dim, memory.shape))
            pointer = f"{self._address} " if self._address else f"{'' if memory.access.writes else 'const '}{_C_TYPES[memory.type.scalar.name]} *"
            yield f"    {pointer}{self.buffers[memory.name]}; /* {commented(self._about(memory.name, memory.type, f'[{shape}], {memory.access.value}'))} */"
            yield f"    uint64_t {self.buffers[memory.name]}_shape[{max(1, memory.rank)}]; /* in elements */"
        for param in self.interface.params:
            lanes = f"[{param.type.lanes}]" if param.type.is_vector else ""
            yield f"    {_C_TYPES[param.type.scalar.name]} {self.params[param.name]}{lanes}; /* {commented(self._about(param.name, param.type, ''))} */"
        for dim, name in self.dims.items():
            yield f"    uint64_t {name}; /* {commented(f'dim {dim}')} */"
        if not (self.buffers or self.params or self.dims):
            yield "    int nothing; /* the Program has no arguments */"
        yield f"}} {self.name}_arguments_t;"

    def _about(self, name: str, type_: Type, rest: str) -> str:
        spelled = _SPELLED.get(type_.scalar.name)
        components = f"{type_.lanes} components an element" if type_.is_vector and rest else ""
        return "; ".join([f"{name}: {type_.name}{rest}", *filter(None, (spelled, components))])

    def example(self) -> Iterator[str]:
        """Statements that fill a struct called `arguments`."""
        yield f"{self.name}_arguments_t arguments = {{0}};"
        for memory in self.interface.buffers:
            name = self.buffers[memory.name]
            sizes = " ".join([f"arguments.{name}_shape[{axis}] = ...;" for axis in range(memory.rank)])
            yield f"arguments.{name} = ...; {sizes}"
        for param in self.interface.params:
            yield f"arguments.{self.params[param.name]}{'[0]' if param.type.is_vector else ''} = ...;"
        for name in self.dims.values():
            yield f"arguments.{name} = ...;"

    # ---- the function

    def plan(self) -> str:
        """The type of a plan, and the function that makes one of arguments."""
        self._lines = []
        self._solve()
        self._check_shapes()
        self._check_memory()
        self._grid()
        self._pack()
        self._choose()
        body = "\n".join(["    " + line if line else "" for line in self._lines])
        words = max(1, -(-self.step.layout.size_bytes // 8))
        counts = [_COUNT] if self.interface.buffers else []
        helpers = "\n\n".join([*self._sizes.functions(), *counts])
        many, dims = max(1, len(self.interface.buffers)), max(1, len(self.interface.dims))
        return f"""{helpers}

typedef struct {self.name}_plan {{
    uint64_t groups[3]; /* workgroups along x, y, z */
    unsigned entry;
    union {{
        uint64_t words[{words}]; /* for its alignment */
        unsigned char bytes[{8 * words}];
    }} block;
}} {self.name}_plan_t;

/* Makes the plan of a launch, or says why there is none. */
static int {self.name}_plan(const {self.name}_arguments_t *given, {self.name}_plan_t *plan)
{{
    int64_t dims[{dims}] = {{0}}, size = 0;
    uint64_t address[{many}] = {{0}}, count[{many}] = {{0}}, groups;
    int fits = 1, negative = 0;
    (void)given;
    (void)dims;
    (void)address;
    (void)count;
    memset(plan, 0, sizeof *plan);

{body}
    return VYRE_OK;
}}"""

    def _say(self, *lines: str) -> None:
        self._lines += lines

    def _refuse(self, condition: str, status: str) -> None:
        self._say(f"if ({condition})", f"    return VYRE_ERROR_{status};")

    def _is_wide(self, name: str) -> bool:
        """Whether what has this name, a buffer or a dim, may be 2^32 and more in this code."""
        return name in self.interface.wide and name in self.step.layout.wide

    def _solve(self) -> None:
        for number, dim in enumerate(self.interface.dims):
            if dim.name in self._solved:
                memory, axis = self._solved[dim.name]
                source = f"given->{self.buffers[memory.name]}_shape[{axis}]"
            else:
                source = f"given->{self.dims[dim.name]}"
            self._refuse(f"{source} >= {_u64(SIZE_LIMIT if self._is_wide(dim.name) else WORD_LIMIT)}", "SIZE")
            self._say(f"dims[{number}] = (int64_t){source}; /* {commented(dim.name)} */")

    def _check_shapes(self) -> None:
        for memory in self.interface.buffers:
            for axis, expr in enumerate(memory.shape):
                if isinstance(expr, Dim) and self._solved[expr.name] == (memory, axis):
                    continue
                self._extent(expr, f"axis {axis} of {commented(memory.name)} is {commented(print_dim(expr))}", " negative = 1;")
                self._refuse("!fits || size < 0", "SIZE")
                self._refuse(f"given->{self.buffers[memory.name]}_shape[{axis}] != (uint64_t)size", "SHAPE")

    def _check_memory(self) -> None:
        for number, memory in enumerate(self.interface.buffers):
            name = self.buffers[memory.name]
            most = min((SIZE_LIMIT if self._is_wide(memory.name) else WORD_LIMIT) - 1, self.limits.elements)
            self._refuse(f"!size_count(given->{name}_shape, {memory.rank}, {memory.type.lanes}, {_u64(most)}, &count[{number}])", "SIZE")
            self._say(f"count[{number}] *= {memory.type.scalar.size_bytes}; /* bytes from here on */")
            self._say(f"address[{number}] = (uint64_t){'' if self._address else '(uintptr_t)'}given->{name};")
            self._refuse(f"count[{number}] && !address[{number}]", "NULL")
            if memory.type.scalar.size_bytes > 1:
                self._refuse(f"count[{number}] && address[{number}] % {memory.type.scalar.size_bytes}", "ALIGNMENT")
        for pair in self.interface.apart():
            number, other = (self._number(memory.name) for memory in pair)
            meet = f"address[{number}] < address[{other}] + count[{other}] && address[{other}] < address[{number}] + count[{number}]"
            self._refuse(f"count[{number}] && count[{other}] && {meet}", "OVERLAP")

    def _grid(self) -> None:
        step = self.step
        for axis, extent in enumerate(step.grid.extents):
            self._extent(extent, f"the grid along {'xyz'[axis]}: {commented(print_dim(extent))}")
            self._refuse("!fits || size < 0", "GRID")
            width = step.workgroup[axis]
            groups = f"(uint64_t)size / {width} + ((uint64_t)size % {width} != 0)" if step.grid.over and width > 1 else "(uint64_t)size"
            self._say(f"groups = {groups};")
            self._refuse(f"groups > {_u64(min(self.limits.workgroups[axis], (WORD_LIMIT - 1) // width))}", "GRID")
            self._say(f"plan->groups[{axis}] = groups;")
        pair = "plan->groups[0] * plan->groups[1]"
        self._refuse(f"plan->groups[2] && {pair} > {_u64(GROUPS_LIMIT - 1)} / plan->groups[2]", "GRID")
        self._say("if (!plan->groups[0] || !plan->groups[1] || !plan->groups[2])", "    return VYRE_OK; /* nothing to run */")
        self._refuse("negative", "SIZE")

    def _extent(self, expr: DimExpr, what: str, then: str = "") -> None:
        """The size of an axis or of the grid: none below zero where a dim in it is zero, as `ir.language.dims.evaluate_extent`."""
        self._say(f"size = {self._sizes.expression(expr)}; /* {what} */")
        if isinstance(expr, DimOp):
            zero = " || ".join([f"{self._sizes.expression(dim)} == 0" for dim in dict.fromkeys(dims_of(expr))])
            if zero:
                self._say(f"if (size < 0 && ({zero})) {{", f"    size = 0;{then}", "}")

    def _pack(self) -> None:
        for slot in self.step.layout.buffers:
            self._say(f"memcpy(plan->block.bytes + {slot.offset_bytes}, &address[{self._number(slot.name)}], 8);")
        for slot in self.step.layout.scalars:
            if slot.kind is SlotKind.PARAM:
                self._pack_param(slot)
                continue
            if slot.axis is not None:
                self._say(f"groups = plan->groups[{slot.axis}];", f"memcpy(plan->block.bytes + {slot.offset_bytes}, &groups, {slot.size_bytes});")
                continue
            assert slot.expr is not None  # an extent; `export_c` refuses the others
            self._say(f"size = {self._sizes.expression(slot.expr)}; /* {commented(print_dim(slot.expr))} */")
            self._refuse(f"!fits || size < 0 || size >= INT64_C({1 << 32 if slot.size_bytes == 4 else 1 << 48})", "SIZE")
            self._say(f"memcpy(plan->block.bytes + {slot.offset_bytes}, &size, {slot.size_bytes}); /* its low bytes, which come first */")

    def _pack_param(self, slot: Slot) -> None:
        name, begin = slot.source
        field = f"given->{self.params[name]}"
        param = next(p for p in self.interface.params if p.name == name)
        if param.type.scalar.name == "bool":
            for lane in range(slot.type.lanes):
                component = f"{field}[{begin + lane}]" if param.type.is_vector else field
                self._say(f"plan->block.bytes[{slot.offset_bytes + lane}] = {component} != 0;")
            return
        source = f"(const unsigned char *){field} + {begin}" if param.type.is_vector else f"&{field}"
        self._say(f"memcpy(plan->block.bytes + {slot.offset_bytes}, {source}, {slot.type.size_bytes});")

    def _choose(self) -> None:
        """The best entry whose needs are met, and its workgroups along x."""
        last = len(self.step.entries) - 1
        self._say(f"plan->entry = {last};")
        for number in reversed(range(last)):
            entry = self.step.entries[number]
            self._say(f"if ({' && '.join(self._needs(entry)) or '1'})", f"    plan->entry = {number};")
        for number, entry in enumerate(self.step.entries):
            if entry.elements > 1:
                self._say(f"if (plan->entry == {number}) {{ /* workgroups that are full, and for what is left one element an invocation */")
                width = self.step.workgroup[0]
                self._say(f"    size = {self._sizes.expression(self.step.grid.extents[0])};")
                self._say(f"    groups = (uint64_t)size % {width * entry.elements};")
                self._say(f"    plan->groups[0] = (uint64_t)size / {width * entry.elements} + groups / {width} + (groups % {width} != 0);", "}")

    def _number(self, buffer: str) -> int:
        return next(number for number, memory in enumerate(self.interface.buffers) if memory.name == buffer)

    def _needs(self, entry: Entry) -> Iterator[str]:
        for need in entry.needs:
            if isinstance(need, Aligned):
                yield f"address[{self._number(need.buffer)}] % {need.size_bytes} == 0"
            elif isinstance(need, Within):
                yield f"{self._sizes.expression(need.expr)} >= 1 && {self._sizes.expression(need.expr)} <= {need.most}"
            else:
                yield f"{self._sizes.expression(need.expr)} % {need.by} == 0"
