"""Options that change a launch, but not code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from math import prod
from typing import Any, Final

from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import is_count
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import u32
from vyre_py.ir.public import public
from vyre_py.ir.travel import ValueRecord
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["GRID_WORDS", "DispatchConfig"]

GRID_WORDS: Final = 3


def _is_cluster(value: object) -> bool:
    return value is None or (isinstance(value, tuple) and len(value) == 3 and all(is_count(v) and v > 0 for v in value))


def _is_grid(value: object) -> bool:
    if isinstance(value, Buffer):
        return value.type is u32 and prod(value.shape) == GRID_WORDS
    return value is None or (isinstance(value, tuple) and len(value) == GRID_WORDS and all(map(is_count, value)))


# Field -> what a value must satisfy, and how to say it.
_FITS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "label": (lambda v: isinstance(v, str), "text"),
    "grid": (_is_grid, "three whole numbers, workgroups along x, y, z, or a buffer of three u32"),
    "fixpoint": (lambda v: v is None or isinstance(v, str), "the name of a buffer"),
    "fixpoint_limit": (lambda v: v is None or (is_count(v) and v > 0), "how many launches at most, one or more"),
    "cooperative": (lambda v: isinstance(v, bool), "true or false"),
    "timeout": (lambda v: v is None or (isinstance(v, (int, float)) and v >= 0), "a time in seconds"),
    "stream": (lambda v: v is None or hasattr(v, "__cuda_stream__"), "an object with __cuda_stream__"),
    "max_output_bytes": (lambda v: v is None or is_count(v), "a whole number of bytes"),
    "races": (lambda v: isinstance(v, bool), "true or false"),
    "unwritten": (lambda v: isinstance(v, bool), "true or false"),
    "on_print": (lambda v: v is None or callable(v), "a function that takes a line of text"),
    "cluster": (_is_cluster, "three positive whole numbers, workgroups along x, y, z"),
}


@public
@dataclass(frozen=True, slots=True)
class DispatchConfig(ValueRecord):
    """How to run. A field that a device can't honour is refused by name, never ignored.

    Attributes: `label` names the launch for people; `grid` replaces the grid, in workgroups along x, y, z, or as a buffer of three u32 that
    the device reads when the launch begins; `fixpoint` names a buffer that is looked at
    between launches, of which there are `fixpoint_limit` at most; `cooperative` asks that all workgroups run at once; `timeout` in seconds, after which
    an interruptible kernel is ended, and on wgpu the call gives up, while the kernel runs on;
    `max_output_bytes` refuses larger results before anything runs; `stream` is any object with `__cuda_stream__`. `cluster` asks, on NVIDIA GPUs from sm_90
    on, that so many workgroups along x, y, z run side by side; they have to divide the grid. `races`, on the reference device, raises RaceError where two
    invocations race for an element of memory, or two workgroups of a Program of tiles; the code that runs is looked at, which with `CompileOptions(opt=0)` is
    the Program as it was written. `unwritten`, there too, raises UnwrittenRead at the end of a launch that read elements of workgroup or private arrays which
    nothing had written: zeros, as the language has it, and mostly a store that was forgotten. Both may be asked for; a race comes first. `on_print` gets each
    line that the Program prints, once the launch is waited for; else `device.on_print` does, or the standard output.
    Raises Unsupported for a value that no device takes.
    """

    label: str = ""
    grid: tuple[int, int, int] | Buffer | None = None
    fixpoint: str | None = None
    cooperative: bool = False
    timeout: float | None = None
    max_output_bytes: int | None = None
    stream: Any = None
    fixpoint_limit: int | None = None
    cluster: tuple[int, int, int] | None = None
    races: bool = False
    unwritten: bool = False
    on_print: Callable[[str], object] | None = None

    def __post_init__(self) -> None:
        wrong = [
            Missing(f"dispatch option {name}={shown(getattr(self, name))}", help=f"it is {wanted}")
            for name, (fits, wanted) in _FITS.items()
            if not fits(getattr(self, name))
        ]
        if self.fixpoint_limit is not None and self.fixpoint is None:
            wrong.append(Missing("dispatch option fixpoint_limit", help="it limits a fixpoint, which is to be named"))
        if wrong:
            raise Unsupported("vyre-py", wrong)

    @classmethod
    def given(cls, config: DispatchConfig | None) -> DispatchConfig:
        """The caller's options, or the defaults for None. Raises Unsupported for anything else."""
        if config is None:
            return _DEFAULTS
        if not isinstance(config, cls):
            raise Unsupported("vyre-py", [Missing(f"config {shown(config)}", help="it is a DispatchConfig")])
        return config

    def refuse(self, who: str, honoured: frozenset[str]) -> None:
        """Raises Unsupported that names every field which differs from its default and is not in `honoured`."""
        if self is _DEFAULTS:
            return
        changed = [f.name for f in fields(self) if getattr(self, f.name) != f.default and f.name not in honoured]
        if changed:
            raise Unsupported(who, [Missing(f"dispatch option {name}") for name in changed])


# What binds and dispatches without options share: making and comparing one took a tenth of a bind.
_DEFAULTS: Final = DispatchConfig()
