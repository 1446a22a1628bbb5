"""Arena plans: where the values of a chain of steps lie in one allocation, so that values which are never needed together share bytes.

    plan = plan_arena(
        [ArenaValue("x", (n,), f32), ArenaValue("h", (n,), f32), ArenaValue("y", (n,), f32)],
        [ArenaStep(reads=("x",), writes=("h",)), ArenaStep(reads=("h",), writes=("y",))],
        inputs=("x",), outputs=("y",),
    )
    print(plan.explain())

What a plan promises: two values that are needed during one step share no byte, except a view and what it is a view of, and a value that was made in
place and its source. Every offset is a multiple of the alignment. The same arguments give the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import Any, Final

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.arena.fitter import Block, fit
from vyre_py.drivers.memory.buffer import whole_sizes
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import Type
from vyre_py.ir.public import public
from vyre_py.ir.travel import ValueRecord

__all__ = ["ALIGNMENT", "ArenaPlan", "ArenaStep", "ArenaValue", "listed", "plan_arena"]

# What CUDA's own allocations begin at, and what WebGPU may ask of a binding's offset.
ALIGNMENT: Final = 256
_MAX_BYTES: Final = 1 << 62
_COLUMNS: Final = 64


@public
@dataclass(frozen=True, slots=True)
class ArenaValue(ValueRecord):
    """An array of the chain: its shape in elements of a type.

    `view_of` names a value whose bytes these are, in another shape or of another type (a reshape, a bitcast). `takes` names a value of as many
    bytes that the step which first writes this one turns into it, as a cast does that is made in place through one read_write argument: the
    two share their bytes where nothing else needs the source. Where a later step, or another argument of the same step, reads the source, it is copied before
    the step. A `zeroed` value is filled with zeros before the first step that uses it.
    """

    name: str
    shape: tuple[int, ...]
    type: Type
    view_of: str = ""
    takes: str = ""
    zeroed: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.type.size_bytes


@public
@dataclass(frozen=True, slots=True)
class ArenaStep(ValueRecord):
    """A launch: the values that it reads and those that it writes; one that it updates stands in both."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    name: str = ""


@public
@dataclass(frozen=True, slots=True)
class ArenaPlan(ValueRecord):
    """Where everything lies, and why.

    Attributes: `values` and `steps` as they were given; by name, `offsets` in bytes and `lifetimes`, the first and the last step that a
    value's bytes are kept for; `peak_bytes`, the size of the arena; `sum_bytes`, what one allocation for each value would take (views have none);
    `floor_bytes`, the most that is needed during one step, which no plan can be below; `fills`, (step, value) pairs: zeros go in before the step;
    `copies`, (step, source, value) triples: the source's bytes go to the value before the step.
    """

    values: Mapping[str, ArenaValue]
    steps: tuple[ArenaStep, ...]
    offsets: Mapping[str, int]
    lifetimes: Mapping[str, tuple[int, int]]
    alignment: int
    peak_bytes: int
    sum_bytes: int
    floor_bytes: int
    fills: tuple[tuple[int, str], ...] = ()
    copies: tuple[tuple[int, str, str], ...] = ()

    def explain(self) -> str:
        """The plan as a table in order of lifetimes; a bar shows when a value's bytes are kept, with more than 64 steps to a smaller scale."""
        count = max(1, len(self.steps))
        saved = f"{1 - self.peak_bytes / self.sum_bytes:.0%} saved" if self.sum_bytes else "nothing to save"
        bytes_ = f"{self.sum_bytes:,} apart ({saved}), at least {self.floor_bytes:,} at once"
        lines = [
            f"arena of {self.peak_bytes:,} bytes for {len(self.values)} values over {len(self.steps)} steps; {bytes_}",
            f"{'value':16s} {'type and shape':20s} {'offset':>14s} {'bytes':>14s}  steps",
        ]
        for name, value in sorted(self.values.items(), key=lambda item: (self.lifetimes[item[0]], self.offsets[item[0]])):
            first, last = self.lifetimes[name]
            columns = min(count, _COLUMNS)
            begin, end = first * columns // count, max(first * columns // count + 1, (last + 1) * columns // count)
            bar = "." * begin + "#" * (end - begin) + "." * (columns - end)
            said = f" view of {value.view_of}" if value.view_of else f" takes {value.takes}" if value.takes else ""
            what = f"{value.type}{list(value.shape)}"
            lines.append(f"{name:16s} {what:20s} {self.offsets[name]:14,} {value.size_bytes:14,}  {bar} {first}-{last}{said}")
        lines += [f"zeros go to {name} before step {step}" for step, name in self.fills]
        lines += [f"{source} is copied to {name} before step {step}, since it is needed besides" for step, source, name in self.copies]
        return "\n".join(lines)


@public
def plan_arena(
    values: Iterable[ArenaValue], steps: Iterable[ArenaStep], *, inputs: Iterable[str] = (), outputs: Iterable[str] = (), alignment: int = ALIGNMENT
) -> ArenaPlan:
    """Lays values out for a chain of steps that run in order, any number of times.

    `inputs` are written before the chain and kept for the whole of it, so that it can run again; `outputs` are kept from their first write to the
    end, and hold the result until the chain runs again. All other bytes are unspecified until a step writes them. `alignment` is in bytes, a power of
    two. How the places are found, and from where: `fitter.fit`. Raises BindingError with all that is wrong: names unknown or given twice, values
    that are read before anything writes them, views that do not have their source's size.
    """
    given = (listed("values", values), listed("steps", steps), listed("inputs", inputs), listed("outputs", outputs))
    return _Planner(*given, alignment).plan()


def listed(what: str, given: Any) -> list[Any]:
    """The caller's items. Raises BindingError for a single item, a text included."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BindingError("arena", [f"{what}: a tuple or list of them is needed, got {shown(given)}"])
    return list(given)


class _Planner:
    """Values that share bytes are one storage, named by its first; `first` and `last` are the steps that a storage is kept for."""

    def __init__(self, values: list[Any], steps: list[Any], inputs: list[Any], outputs: list[Any], alignment: Any) -> None:
        self.problems: list[str] = []
        self.alignment = alignment
        self.given, self.given_steps, self.inputs, self.outputs = values, steps, inputs, outputs
        self.values: dict[str, ArenaValue] = {}
        self.storage: dict[str, str] = {}
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.first_write: dict[str, int] = {}
        self.copies: list[tuple[int, str, str]] = []

    def plan(self) -> ArenaPlan:
        for step in (self.check_values, self.check_names, self.resolve_views, self.find_lifetimes, self.check_order, self.share_in_place):
            step()
            if self.problems:
                raise BindingError("arena", self.problems)
        unit = self.alignment
        sizes = {name: -(-value.size_bytes // unit) for name, value in self.values.items() if not value.view_of}
        roots = list(dict.fromkeys(self.root(name) for name in sizes))
        blocks = [Block(sizes[name], self.first[name], self.last[name]) for name in roots]
        if sum(sizes.values()) * unit >= _MAX_BYTES:
            raise BindingError("arena", [f"the values take {shown(sum(sizes.values()) * unit)} bytes; fewer than 2^62 are needed"])
        places, peak, floor = fit(blocks)
        at = dict(zip(roots, places, strict=True))
        return ArenaPlan(
            MappingProxyType(dict(self.values)), tuple(self.given_steps),
            MappingProxyType({name: at[self.root(name)] * unit for name in self.values}),
            MappingProxyType({name: (self.first[root], self.last[root]) for name in self.values for root in [self.root(name)]}),
            unit, peak * unit, sum(sizes.values()) * unit, floor * unit,
            tuple(sorted((self.first[self.root(name)], name) for name, value in self.values.items() if value.zeroed)), tuple(self.copies),
        )  # fmt: skip

    def root(self, name: str) -> str:
        """The value that names a storage, which is reached in as many hops as values were merged into each other."""
        found = name
        while self.storage[found] != found:
            found = self.storage[found]
        while self.storage[name] != found:
            self.storage[name], name = found, self.storage[name]
        return found

    # ---- what was given

    def check_values(self) -> None:
        if not _is_power_of_two(self.alignment):
            self.problems.append(f"alignment {shown(self.alignment)} is not a power of two")
        for value in self.given:
            if not isinstance(value, ArenaValue):
                self.problems.append(f"a value is an ArenaValue, got {shown(value)}")
            elif not isinstance(value.name, str) or not value.name or value.name in self.values:
                self.problems.append(f"value {shown(value.name)} is given twice, or has no name")
            elif not isinstance(value.type, Type) or not isinstance(value.shape, tuple) or whole_sizes(value.shape) is None:
                self.problems.append(f"value {value.name!r} is {shown(value.type)} of shape {shown(value.shape)}; a type and whole numbers are needed")
            elif _is_power_of_two(self.alignment) and self.alignment % value.type.scalar.size_bytes:
                self.problems.append(f"value {value.name!r} of {value.type} does not fit an alignment of {self.alignment}")
            else:
                self.values[value.name] = value

    def check_names(self) -> None:
        for number, step in enumerate(self.given_steps):
            if not isinstance(step, ArenaStep) or not all(isinstance(names, tuple) for names in (step.reads, step.writes)):
                self.problems.append(f"step {number} is an ArenaStep with tuples of names, got {shown(step)}")
                continue
            self.problems += [f"step {number} names {shown(n)}, which is not a value" for n in (*step.reads, *step.writes) if not self.knows(n)]
        for what, names in (("input", self.inputs), ("output", self.outputs)):
            self.problems += [f"{what} {shown(name)} is not a value" for name in names if not self.knows(name)]
        for value in self.values.values():
            said = [("view_of", value.view_of), ("takes", value.takes)]
            self.problems += [f"{value.name!r} says {how}={shown(name)}, which is not a value" for how, name in said if name and not self.knows(name)]
            if value.view_of and (value.takes or value.zeroed):
                self.problems.append(f"{value.name!r} is a view: what it is a view of may be zeroed, or take another value's place")
            if value.takes and (value.zeroed or value.name in self.inputs):
                self.problems.append(f"{value.name!r} takes the place of {value.takes!r}, so it cannot be an input, nor begin with zeros")
            if value.zeroed and value.name in self.inputs:
                self.problems.append(f"{value.name!r} is an input, which holds what is written into it: it cannot begin with zeros")

    def knows(self, name: Any) -> bool:
        return isinstance(name, str) and name in self.values

    # ---- who shares bytes with whom, and when they are needed

    def resolve_views(self) -> None:
        for name, value in self.values.items():
            self.storage[name] = value.view_of or name
        for name in self.values:
            path = [name]
            while (source_name := self.storage[path[-1]]) not in path[-1:] and len(path) <= len(self.values):
                path.append(source_name)
            if len(path) > len(self.values):
                self.problems.append(f"{name!r} is a view of itself")
                return
            self.storage.update(dict.fromkeys(path, path[-1]))
        for name, value in self.values.items():
            if (source := self.values[value.view_of] if value.view_of else value).size_bytes != value.size_bytes:
                self.problems.append(f"view {name!r} has {value.size_bytes} bytes, {source.name!r} that it is a view of has {source.size_bytes}")
            elif value.takes and _mismatch(self.values[value.takes], value):
                self.problems.append(f"{name!r} cannot take the place of {value.takes!r}: {_mismatch(self.values[value.takes], value)}")

    def uses(self) -> Iterator[tuple[int, str, bool]]:
        """Step, storage, whether it is written; the reads of a step come before its writes."""
        for number, step in enumerate(self.given_steps):
            yield from ((number, self.root(name), False) for name in step.reads)
            yield from ((number, self.root(name), True) for name in step.writes)

    def find_lifetimes(self) -> None:
        end = max(0, len(self.given_steps) - 1)
        for number, root, is_write in self.uses():
            self.first.setdefault(root, number)
            self.last[root] = number
            if is_write:
                self.first_write.setdefault(root, number)
        for root in map(self.root, self.inputs):
            self.first[root], self.last[root] = 0, end
        for root in map(self.root, self.outputs):
            if root in self.first:
                self.last[root] = end
        unused = [name for name in self.values if self.root(name) not in self.first]
        self.problems += [f"{name!r} is neither an input nor used by any step" for name in unused]

    def check_order(self) -> None:
        filled = {self.root(name) for name, value in self.values.items() if value.zeroed} | {self.root(name) for name in self.inputs}
        said: set[str] = set()
        for number, root, is_write in self.uses():
            if is_write:
                filled.add(root)
            elif root not in filled and root not in said:
                said.add(root)
                self.problems.append(f"step {number} reads {root!r}, which nothing writes before: make it an input, or zeroed")
        self.problems += [f"output {name!r} is written by no step" for name in self.outputs if self.root(name) not in filled]
        for name, value in self.values.items():
            if value.takes:
                step = self.given_steps[self.first[name]] if self.given_steps else ArenaStep()
                if name not in step.writes or value.takes not in step.reads:
                    self.problems.append(f"{name!r} takes the place of {value.takes!r}: the first step that uses it must read that and write this")

    def share_in_place(self) -> None:
        """Merges what is made in place with its source, in the order of the steps, or has the source copied."""
        pinned = {self.root(name) for name in (*self.inputs, *self.outputs)}
        for name in sorted((name for name, value in self.values.items() if value.takes), key=self.first.__getitem__):
            source, number = self.root(self.values[name].takes), self.first[name]
            step = self.given_steps[number]
            beside = {self.root(other) for other in step.writes if other != name}
            # Another argument of the step that reads the source still sees it as it was.
            if source in pinned or source in beside or self.last[source] != number or [self.root(other) for other in step.reads].count(source) > 1:
                self.copies.append((number, self.values[name].takes, name))
                continue
            self.storage[name] = source
            self.last[source] = self.last[name]
            if name in pinned:
                pinned.add(source)


def _is_power_of_two(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0 and value & (value - 1) == 0


def _mismatch(source: ArenaValue, value: ArenaValue) -> str:
    """Why a value can't be made in place of another: invocations of one launch would write where others still read."""
    if source.size_bytes != value.size_bytes:
        return f"it has {source.size_bytes} bytes, {value.name!r} has {value.size_bytes}"
    if source.type.scalar.size_bytes != value.type.scalar.size_bytes:
        return f"its elements have {source.type.scalar.size_bytes} bytes, those of {value.name!r} {value.type.scalar.size_bytes}"
    return ""
