"""Sequences: launches, copies and fills as one call; and the steps other than launches.

A step is made of buffers and runs by itself too: `copy_step(x, y)()` is `y.copy_from(x)`. On devices with native call lists a sequence is one native
call; elsewhere it is a loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.launch import EmptyLaunch
from vyre_py.drivers.many.commands import COPY, FILL, PRODUCT, Command, CommandRunner, require_memory
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Param
from vyre_py.ir.public import public
from vyre_py.ir.travel import Stationary

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["CopyStep", "FillStep", "GemmStep", "Sequence", "SequenceStep", "copy_step", "fill_step", "flat_steps", "gemm_step", "require_buffer"]


@public
class SequenceStep(Command, Stationary):
    """A step of a sequence other than a launch. Attributes: `device`, `name` for people, `buffers` that it uses, by what they are for it."""

    travels_as = "send arrays and pipelines, and make the step there"

    __slots__ = ("__weakref__", "buffers", "device", "name")

    def __init__(self, device: Device, name: str, buffers: Mapping[str, Buffer]) -> None:
        self.device, self.name, self.buffers = device, name, dict(buffers)

    def __repr__(self) -> str:
        return f"<{self.name} on {self.device.name}>"

    def __call__(self) -> None:
        """Enqueues the step by itself. Raises BindingError when one of its buffers was freed."""
        self.require_memory()
        self.device.require_usable()
        super().__call__()

    def require_memory(self) -> None:
        """Raises BindingError when one of its buffers was freed."""
        require_memory(self.name, self.buffers)

    @property
    def _device(self) -> Device:
        return self.device

    @property
    def _title(self) -> str:
        return self.name

    def _bound(self) -> dict[str, Buffer]:
        return self.buffers


class CopyStep(SequenceStep):
    """Copies `source` to `target`, of the same device, shape and type."""

    _kind = COPY
    __slots__ = ("source", "target")

    def __init__(self, source: Buffer, target: Buffer) -> None:
        super().__init__(target.device, "copy", {"source": source, "target": target})
        self.source, self.target = source, target

    def _run(self) -> None:
        self.target.copy_from(self.source)


class FillStep(SequenceStep):
    """Fills `buffer` with one value, whose bytes in memory are `pattern`."""

    _kind = FILL
    __slots__ = ("buffer", "pattern", "value")

    def __init__(self, buffer: Buffer, value: Any, pattern: bytes) -> None:
        super().__init__(buffer.device, "fill", {"buffer": buffer})
        self.buffer, self.value, self.pattern = buffer, value, pattern

    def _run(self) -> None:
        self.buffer.fill(self.value)


class GemmStep(SequenceStep):
    """out = alpha * a @ b + beta * out, through the device's own library. Made by `gemm_step`."""

    _kind = PRODUCT
    __slots__ = ()


def require_buffer(doing: str, name: str, buffer: Any, written: bool) -> None:
    """Raises BindingError for what is no buffer, or was freed, or may not be written."""
    if not isinstance(buffer, Buffer):
        raise BindingError(doing, [f"{name!r} is a resident buffer (device.upload makes one), got {type(buffer).__name__}"])
    if buffer.allocation.freed:
        raise BindingError(doing, [f"{name!r} {buffer.allocation.absence}"])
    if written:
        buffer._require_writeable(doing)


@public
def copy_step(source: Buffer, target: Buffer) -> CopyStep:
    """A copy between two buffers of one device, shape and type, for `device.sequence`. Raises BindingError for others, and for ones that overlap."""
    require_buffer("copy_step", "source", source, False)
    require_buffer("copy_step", "target", target, True)
    if source.device is not target.device or not source.is_like(target) or target.overlaps(source):
        wanted = f"a separate {target.type}{list(target.shape)} on {target.device.name}"
        raise BindingError("copy_step", [f"'source' is {wanted}, got {shown(source)} on {source.device.name}"])
    return CopyStep(source, target)


@public
def fill_step(buffer: Buffer, value: Any) -> FillStep:
    """Fills a buffer with a number (for vectors a sequence of components), for `device.sequence`. Raises BindingError for a value that does not fit."""
    require_buffer("fill_step", "buffer", buffer, True)
    return FillStep(buffer, value, encode_param(Param("value", buffer.type), value))


Math = Literal["f32", "tf32"]


@public
def gemm_step(
    a: Buffer, b: Buffer, out: Buffer, *, alpha: float = 1.0, beta: float = 0.0, transpose_a: bool = False, transpose_b: bool = False, math: Math = "f32"
) -> GemmStep:
    """out = alpha * a @ b + beta * out over row-major matrices, for `device.sequence`, or called by itself.

    `a` is (m, k), `b` (k, n), each the other way round where it is transposed, `out` (m, n); with one more axis in front, of the same size in all three,
    a matrix each. Elements are f16, bf16, f32 or f64, the same in `a` and `b`; `out` has them too, or f32. Sums of products of f16, bf16 and f32 are
    kept in f32; `math="tf32"` multiplies f32 with 10 bits of fraction. Results are within rounding of the sums' order, not exact to the bit.

    Raises BindingError for shapes and types that do not fit, Unsupported on devices without such a library, DeviceUnavailable without its package.
    """
    for name, buffer in (("a", a), ("b", b), ("out", out)):
        require_buffer("gemm_step", name, buffer, name == "out")
    if not a.device is b.device is out.device:
        raise BindingError("gemm_step", [f"the buffers are on {a.device.name}, {b.device.name} and {out.device.name}; one device is needed"])
    if math not in ("f32", "tf32"):
        raise BindingError("gemm_step", [f"math is 'f32' or 'tf32', got {shown(math)}"])
    problems = [f"{n!r} is a number, got {shown(v)}" for n, v in (("alpha", alpha), ("beta", beta)) if not isinstance(v, (int, float))]
    problems += _shape_problems(a, b, out, transpose_a, transpose_b)
    problems += [f"'out' overlaps {name!r}" for name, other in (("a", a), ("b", b)) if out.overlaps(other)]
    if problems:
        raise BindingError("gemm_step", problems)
    return a.device._gemm_step(a, b, out, float(alpha), float(beta), transpose_a, transpose_b, math)


def _shape_problems(a: Buffer, b: Buffer, out: Buffer, transpose_a: bool, transpose_b: bool) -> list[str]:
    shapes = [buffer.shape for buffer in (a, b, out)]
    rank = len(out.shape)
    if rank not in (2, 3) or any(len(shape) != rank for shape in shapes) or len({shape[:-2] for shape in shapes}) != 1:
        return [f"matrices, or as many of them in each, are needed; the shapes are {', '.join(str(list(s)) for s in shapes)}"]
    (m, k), (k2, n) = [shape[-2:][:: -1 if turned else 1] for shape, turned in zip(shapes[:2], (transpose_a, transpose_b), strict=True)]
    if k != k2 or out.shape[-2:] != (m, n):
        return [f"{m} x {k} times {k2} x {n} into {' x '.join(map(str, out.shape[-2:]))}: the sizes do not fit"]
    return [f"the matrices have no elements: {', '.join(str(list(s)) for s in shapes)}"] if 0 in (prod(out.shape), k) else []


def flat_steps(device: Device, steps: Many[Any]) -> list[Command]:
    """The steps of a sequence, those of nested sequences in their places, without launches of nothing.

    Raises BindingError for whatever is no step, and for steps of other devices.
    """
    found: list[Command] = []
    problems = [] if steps else ["a sequence has one step at least"]
    for number, step in enumerate(steps):
        for one in step.steps if isinstance(step, Sequence) else (step,):
            if not isinstance(one, Command):
                help_ = "; Python code cannot be part of a sequence" if callable(one) else ""
                wanted = "a launch, a sequence, or what copy_step, fill_step, gemm_step, all_reduce_step and their like give"
                problems.append(f"step {number} is {wanted}, not {type(one).__name__}{help_}")
            elif one._device is not device:
                problems.append(f"step {number} is on {one._device.name}, the sequence on {device.name}")
            elif not isinstance(one, EmptyLaunch):
                found.append(one)
    if problems:
        raise BindingError("sequence", problems)
    return found


@public
class Sequence(Stationary):
    """Launches, copies and fills in order, as one call. Made by `device.sequence`; it keeps its steps alive.

    Attributes: `device`, `steps`. What `launch.set` changes is what the next run uses.
    """

    travels_as = "send pipelines, and make the sequence there"

    __slots__ = ("__weakref__", "_runner", "device", "steps")

    def __init__(self, device: Device, steps: Many[Command]) -> None:
        self.device = device
        self.steps = tuple(steps)
        self._runner: CommandRunner | None = None  # made by the first call

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        return f"<Sequence of {len(self.steps)} steps on {self.device.name}>"

    def __call__(self) -> None:
        """Enqueues all steps. Raises what a step raises: BindingError before anything ran when a buffer was freed, LaunchError, DeviceLost."""
        self.device.require_usable()
        if self._runner is None:
            self._runner = self.device._runner(self.steps, lambda number, _: f"step {number} of a sequence")
        self._runner()
