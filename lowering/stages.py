"""Where the time of a compilation went: check, each pass, lowering, LLVM, loading. Always measured: it takes two looks at a clock a stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Self

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.imports import importing
from vyre_py.ir.public import public
from vyre_py.ir.travel import ValueRecord, made_by

if TYPE_CHECKING:
    from vyre_py.ir.passes import PassStep

__all__ = ["Stage", "Stages", "Stopwatch", "shown_ns"]

_NS_PER_MS: Final = 1e6
_NS_PER: Final = ((10**9, "s"), (10**6, "ms"), (10**3, "us"))


def shown_ns(nanoseconds: int) -> str:
    """A time for people, in the largest unit of which there is one at least."""
    unit, name = next(((unit, name) for unit, name in _NS_PER if nanoseconds >= unit), (1, "ns"))
    return f"{nanoseconds / unit:.3g} {name}"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: when it began and ended, by `time.perf_counter_ns`, and how many stages it is part of."""

    name: str
    depth: int
    begin_ns: int
    end_ns: int

    @property
    def elapsed_ns(self) -> int:
        """How long it took."""
        return self.end_ns - self.begin_ns


@public
@dataclass(frozen=True, slots=True)
class Stages(ValueRecord):
    """The stages of one compilation in the order in which they began, a stage before those that it is made of.

    They come one after the other, though perhaps not at once: a Program that is compiled for several targets is checked once.
    """

    rows: tuple[Stage, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return made_by(Stages._of, [(stage.name, stage.depth, stage.begin_ns, stage.end_ns) for stage in self.rows])

    @classmethod
    def _of(cls, rows: Iterable[tuple[str, int, int, int]]) -> Self:
        return cls(tuple([Stage(*row) for row in rows]))

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def elapsed_ns(self, name: str) -> int:
        """The time in all stages of a name ("check", "optimise", a pass, "lower", "llvm", "load"); 0 where there was none."""
        return sum(stage.elapsed_ns for stage in self.rows if stage.name == name)

    @property
    def total_ns(self) -> int:
        """The time in all stages together."""
        return sum(stage.elapsed_ns for stage in self.rows if not stage.depth)

    def _repr_html_(self) -> str:
        with importing:
            from vyre_py.ir.text.notebook.cards import bars, card

        return card("Stages", f"{shown_ns(self.total_ns)} in all", (), bars(self.bars()))

    def bars(self) -> list[tuple[str, float, str]]:
        """A row for each stage: its name behind a dot for each stage that it is part of, nanoseconds, and these in words."""
        return [("\u00b7 " * stage.depth + stage.name, stage.elapsed_ns, shown_ns(stage.elapsed_ns)) for stage in self.rows]

    def __repr__(self) -> str:
        said = [f"{stage.name} {shown_ns(stage.elapsed_ns)}" for stage in self.rows if not stage.depth]
        return f"<Stages: {', '.join([*said, f'total {shown_ns(self.total_ns)}'])}>"

    def __str__(self) -> str:
        """A table, in milliseconds."""
        rows = [("  " * stage.depth + stage.name, stage.elapsed_ns) for stage in self.rows] + [("total", self.total_ns)]
        widest = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{widest}} {elapsed / _NS_PER_MS:>10.3f} ms" for name, elapsed in rows)


class Stopwatch:
    """Takes the time of stages: `with watch("check"): ...`; stages measured within a stage are part of it. For one thread."""

    __slots__ = ("_depth", "_rows")

    def __init__(self, before: Iterable[Stage] = ()) -> None:
        """`before` are stages that are done."""
        self._rows = list(before)
        self._depth = 0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measures one stage, also one that fails."""
        depth, begin = self._depth, perf_counter_ns()
        self._depth += 1
        try:
            yield
        finally:
            self._depth = depth
            self._rows.append(Stage(name, depth, begin, perf_counter_ns()))

    def add(self, stages: Iterable[Stage]) -> None:
        """Enters what another stopwatch measured, as part of the stage that runs here, if one does."""
        self._rows += [Stage(stage.name, self._depth + stage.depth, stage.begin_ns, stage.end_ns) for stage in stages]

    def add_passes(self, steps: Iterable[PassStep]) -> None:
        """Enters the passes that ran, as part of the stage that runs."""
        self._rows += [Stage(step.name, self._depth, step.begin_ns, step.end_ns) for step in steps]

    @property
    def stages(self) -> Stages:
        """The stages that are done."""
        return Stages(tuple(sorted(self._rows, key=lambda stage: (stage.begin_ns, stage.depth))))
