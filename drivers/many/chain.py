"""Chains: launches that run one after another, their values in one arena, bound once.

    chain = device.chain(
        [
            (normalise, {"x": "x", "out": "h"}),         # a text names a value of the chain
            (multiply, {"a": "h", "b": weights, "c": "g"}),  # anything else goes to `bind` as it is
            (relu, {"y": ("g", "y")}),                   # a read_write argument that holds g before and y after
        ],
        inputs={"x": xs}, outputs=("y",),
    )
    chain()                                              # every launch, in order
    print(chain["y"].read(), chain.explain())
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from vyre_py.drivers.binding import solve_axes
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.launch import Launch
from vyre_py.drivers.many.sequence import Sequence, SequenceStep, copy_step, fill_step
from vyre_py.drivers.memory.arena.arena import Arena
from vyre_py.drivers.memory.arena.planner import ArenaPlan, ArenaStep, ArenaValue, listed, plan_arena
from vyre_py.drivers.memory.buffer import Buffer, host_shape, whole_sizes
from vyre_py.drivers.memory.host_arrays import Host, element_of, host_array
from vyre_py.drivers.pipeline import Pipeline
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import evaluate_extent, is_count, is_size
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, u8
from vyre_py.ir.public import Closing, public
from vyre_py.ir.travel import Stationary

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["Chain", "plan_chain"]


@public
class Chain(Closing, Stationary):
    """Launches over one arena. Call it to run all of them in order; it neither waits nor allocates.

    Attributes: `device`, `arena`, `steps` (the launch of each step, for `set`), `sequence` of those, and of the fills and copies that the plan asks
    for, in the order of running: what a call runs, and what may be part of other sequences and of captured graphs.
    """

    travels_as = "send its Programs, and plan the chain there"

    __slots__ = ("_given", "_planner", "arena", "device", "sequence", "steps")

    def __init__(self, arena: Arena, planner: _ShapeInference, given: list[Any]) -> None:
        self.device = arena.device
        self.arena = arena
        self._planner = planner
        self._given = given
        self.steps, self.sequence = _bound(arena, planner.steps)

    def set_actual_len(self, rows: Mapping[str, int]) -> None:
        """Has inputs, and views that were declared, be shorter than planned from now on, each as many rows of its first axis; those that are not named are
        as planned. The shapes of all other values follow from the Programs, as they did, and every step is bound anew: `steps` and `sequence` are others.

        Raises BindingError for a name that is no input or view, for more rows than were planned, and for what does not fit then; nothing has changed then.
        """
        planner = self._planner.shortened(rows)
        planner.resolve(self._given)
        before = self.arena.set_shapes({name: shape for name, (_, shape) in planner.known.items()})
        try:
            self.steps, self.sequence = _bound(self.arena, planner.steps)
        except BaseException:
            self.arena.set_shapes(before)
            raise

    def __call__(self) -> None:
        """Enqueues everything. Raises what a sequence raises."""
        self.sequence()

    def __getitem__(self, name: str) -> Buffer:
        """A value's buffer. Write inputs before a run, and read outputs after it; other values are gone once their last step has run."""
        return self.arena[name]

    @property
    def plan(self) -> ArenaPlan:
        """Where the values lie, and why."""
        return self.arena.plan

    def explain(self) -> str:
        """The plan of the arena, as text."""
        return self.plan.explain()

    def free(self) -> None:
        """Gives the arena back; the chain refuses to run from then on."""
        self.arena.free()

    close = free  # which the end of a `with` block calls

    def __repr__(self) -> str:
        return f"<Chain of {len(self.steps)} steps on {self.device.name}: {self.arena!r}>"


def plan_chain(
    device: Device, steps: Iterable[tuple[Pipeline | Program, Mapping[str, Any]]], *, inputs: Mapping[str, Any] | None = None,
    outputs: Iterable[str] = (), views: Mapping[str, tuple[str, Type, tuple[int, ...]]] | None = None, zeroed: Iterable[str] = (),
) -> Chain:  # fmt: skip
    """See `Device.chain`."""
    device.require_usable()
    planner = _ShapeInference(device)
    planner.declare(inputs, views)
    planner.resolve(given := listed("steps", steps))
    filled = listed("zeroed", zeroed)
    if unknown := [name for name in filled if not isinstance(name, str) or name not in planner.known]:
        raise BindingError("chain", [f"zeroed {shown(name)} is not a value" for name in unknown])
    plan = plan_arena(planner.values(frozenset(filled)), [step.uses for step in planner.steps], inputs=tuple(inputs or ()), outputs=outputs)
    arena = device.arena(plan)
    try:
        for name, array in planner.arrays.items():
            arena[name].write(array)
        return Chain(arena, planner, given)
    except BaseException:
        arena.free()
        raise


@dataclass(frozen=True, slots=True)
class _Step:
    """A pipeline, its arguments with names of values in place of their buffers, and what it reads and writes."""

    pipeline: Pipeline
    arguments: dict[str, Any]
    values: dict[str, str]
    uses: ArenaStep


@dataclass(slots=True)
class _ShapeInference:
    """Works out the types and shapes of values, step by step."""

    device: Device
    known: dict[str, tuple[Type, tuple[int, ...]]] = field(default_factory=dict)
    relations: dict[str, tuple[str, str]] = field(default_factory=dict)
    arrays: dict[str, Host] = field(default_factory=dict)
    steps: list[_Step] = field(default_factory=list)
    declared: dict[str, tuple[Type, tuple[int, ...]]] = field(default_factory=dict)  # what the caller gave a type and a shape

    def declare(self, inputs: Any, views: Any) -> None:
        """Inputs and views, whose types and shapes the caller gives."""
        for what, given in (("inputs", inputs), ("views", views)):
            if given is not None and not (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
                raise BindingError("chain", [f"{what} go as a mapping of names, got {shown(given)}"])
        for name, given in (inputs or {}).items():
            if isinstance(given, tuple) and len(given) == 2:
                self.know(name, *given)
                continue
            array = host_array(given, name)
            self.know(name, element_of(array.dtype), array.shape or (1,))
            self.arrays[name] = array.reshape(array.shape or (1,))
        for name, given in (views or {}).items():
            if not isinstance(given, tuple) or len(given) != 3:
                raise BindingError("chain", [f"view {name!r} is (value, type, shape), got {shown(given)}"])
            source, type_, shape = given
            self.know(name, type_, shape)
            self.relations[name] = (source, "")

        self.declared = dict(self.known)

    def shortened(self, rows: Any) -> _ShapeInference:
        """One that knows what the caller declared, of so many rows, and no steps yet."""
        if not isinstance(rows, Mapping):
            raise BindingError("chain", [f"rows go as a mapping of names to whole numbers, got {shown(rows)}"])
        problems = [f"{shown(name)} is neither an input nor a view; those are {shown(list(self.declared))}" for name in rows if name not in self.declared]
        problems += [
            f"{name!r} was planned with {shape[0]} rows, got {shown(rows[name])}"
            for name, (_, shape) in self.declared.items()
            if name in rows and not (is_count(rows[name]) and rows[name] <= shape[0])
        ]
        if problems:
            raise BindingError("chain", problems)
        known = {name: (type_, (int(rows.get(name, shape[0])), *shape[1:])) for name, (type_, shape) in self.declared.items()}
        return _ShapeInference(self.device, known, declared=self.declared)

    def know(self, name: str, type_: Any, shape: Any) -> None:
        """The type and shape of a value that the caller gives."""
        sizes = whole_sizes(shape)
        if not isinstance(type_, Type) or sizes is None:
            raise BindingError("chain", [f"{name!r} needs a type of the language and a shape, got {shown(type_)} and {shown(shape)}"])
        self.known[name] = (type_, sizes)

    def resolve(self, steps: list[Any]) -> None:
        """Every step in order, since each may give the next one's sizes."""
        for number, given in enumerate(steps):
            if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], (Pipeline, Program)) or not isinstance(given[1], Mapping):
                raise BindingError("chain", [f"step {number} is a pipeline and a mapping of arguments, got {shown(given)}"])
            pipeline = given[0] if isinstance(given[0], Pipeline) else self.device.compile_native(given[0])
            problems: list[str] = []
            self.steps.append(self.resolved(pipeline, given[1], problems))
            if problems:
                raise BindingError(f"step {number}, {pipeline.name}", problems)

    def resolved(self, pipeline: Pipeline, arguments: Mapping[str, Any], problems: list[str]) -> _Step:
        """One step; the values that it writes first become known."""
        interface = pipeline.artifact.interface
        slots = {memory.name: memory for memory in interface.buffers}
        values: dict[str, str] = {}
        reads: list[str] = []
        writes: list[str] = []
        sizes = {dim.name: int(arguments[dim.name]) for dim in interface.dims if is_size(arguments.get(dim.name))}
        for name, given in arguments.items():
            if name not in slots or not _names_value(given):
                if isinstance(given, Buffer) and name in slots:
                    solve_axes(slots[name], given.host_shape, sizes)
                continue
            before, after = (given, given) if isinstance(given, str) else given
            access = slots[name].access
            values[name] = after
            if before != after:
                if not (access.reads and access.writes):
                    problems.append(f"{name!r} is {access.value}; a value becomes another in place where it is read_write")
                if after in self.known:
                    problems.append(f"{shown(after)} is there already: it cannot be made in place of {before!r}")
                self.relations[after] = ("", before)
            reads += [before] * access.reads
            writes += [after] * access.writes
            if before in self.known:
                type_, shape = self.known[before]
                solve_axes(slots[name], host_shape(shape, type_), sizes)
            elif access.reads and not (access.writes and before == after):
                problems.append(f"{name!r} reads {before!r}, which no step before has written, and which is not an input")
        for name, value in values.items():
            if value not in self.known:
                self.define(slots[name], value, sizes, problems)
        passed = {name: given for name, given in arguments.items() if name not in values}
        return _Step(pipeline, passed, values, ArenaStep(tuple(reads), tuple(writes), pipeline.name))

    def values(self, zeroed: frozenset[str]) -> list[ArenaValue]:
        """All values, for the plan."""
        return [
            ArenaValue(name, shape, type_, *self.relations.get(name, ("", "")), zeroed=name in zeroed) for name, (type_, shape) in self.known.items()
        ]

    def define(self, memory: Memory, value: str, sizes: Mapping[str, int], problems: list[str]) -> None:
        """The type and shape of a value, from the argument that writes it."""
        try:
            shape = tuple(evaluate_extent(expr, sizes) for expr in memory.shape)
        except (KeyError, ZeroDivisionError):
            problems.append(f"the shape of {memory.name!r} does not follow from the other arguments: give its dims by name")
        else:
            self.known[value] = (memory.type, shape)


def _names_value(given: Any) -> bool:
    return isinstance(given, str) or (isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, str) for part in given))


def _bound(arena: Arena, steps: list[_Step]) -> tuple[tuple[Launch, ...], Sequence]:
    """The steps, bound, and a sequence of them, each after the fills and copies that the plan wants before it."""
    plan = arena.plan
    before: dict[int, list[SequenceStep]] = {}
    for number, name in plan.fills:
        before.setdefault(number, []).append(fill_step(_bytes(arena, name), 0))
    for number, source, name in plan.copies:
        before.setdefault(number, []).append(copy_step(_bytes(arena, source), _bytes(arena, name)))
    bound: list[Launch] = []
    launches: list[Launch | SequenceStep] = []
    for number, step in enumerate(steps):
        try:
            bound.append(step.pipeline.bind({**step.arguments, **{slot: arena[value] for slot, value in step.values.items()}}))
        except BindingError as error:
            raise BindingError(f"step {number}, {step.pipeline.name}", error.problems) from error
        launches += [*before.get(number, ()), bound[-1]]
    return tuple(bound), arena.device.sequence(*launches)


def _bytes(arena: Arena, name: str) -> Buffer:
    """All bytes that were planned for a value, however long it is this time."""
    return Buffer(arena.device, arena.allocation, arena.plan.offsets[name], (arena.plan.values[name].size_bytes,), u8)
