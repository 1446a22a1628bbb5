"""Options that change code, and are therefore part of every cache key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Final, Literal

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.tiles.tensor_model import MODELS
from vyre_py.ir.public import public
from vyre_py.ir.travel import ValueRecord
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["MOST_PRINTED", "CompileOptions"]

Numerics = Literal["strict", "fast", "native"]


MOST_PRINTED: Final = 1 << 28
_EVERYWHERE: Final = frozenset({"asserts", "print_bytes", "tensor"})  # what no target has to honour: the Program is rewritten before


def _is_workgroup(value: object) -> bool:
    return value is None or (isinstance(value, tuple) and len(value) == 3 and all(type(v) is int and v > 0 for v in value))


# Field -> what a value must satisfy, and how to say it.
_FITS: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "workgroup": (_is_workgroup, "three positive whole numbers, along x, y, z"),
    "numerics": (lambda v: v is None or (isinstance(v, str) and v in ("strict", "fast", "native")), "strict, fast or native"),
    "codegen": (lambda v: isinstance(v, str) and v in ("llvm", "nvvm"), "llvm or nvvm"),
    "opt": (lambda v: type(v) is int and 0 <= v <= 3, "0, 1, 2 or 3"),
    "debug": (lambda v: isinstance(v, bool), "true or false"),
    "interruptible": (lambda v: isinstance(v, bool), "true or false"),
    "persistent": (lambda v: isinstance(v, bool), "true or false"),
    "dependent": (lambda v: isinstance(v, bool), "true or false"),
    "indirect": (lambda v: isinstance(v, bool), "true or false"),
    "boxes": (lambda v: v is None or isinstance(v, bool), "true, false, or None for the target's choice"),
    "asserts": (lambda v: isinstance(v, bool), "true or false"),
    "tensor": (lambda v: v is None or (isinstance(v, str) and v in MODELS), f"{', '.join(MODELS)}, or None for whatever the target has"),
    "print_bytes": (lambda v: type(v) is int and 0 <= v <= MOST_PRINTED, f"a whole number of bytes from 0 to {MOST_PRINTED}"),
}


@public
@dataclass(frozen=True, slots=True)
class CompileOptions(ValueRecord):
    """How to compile. A field that a target can't honour is refused by name, never ignored.

    Attributes: `workgroup` replaces the Program's workgroup size (x, y, z); `numerics` is "strict", "fast", "native", or None for
    the target's default (strict, on wgpu native); `codegen` picks the PTX back end; `opt` is 0 (none) to 3; `debug` keeps source places
    in the code, in WGSL as comments. `asserts` says whether asserts are in the code; without them their conditions cost nothing. `print_bytes` is the room
    for what the prints of a launch say until it is waited for; with 0 they are not in the code. Raises Unsupported for a value that no target knows.

    `tensor` names the architecture whose tensor cores' bits the products `mma_tensor` of floats are to have, "sm_90": on such a GPU, and on the reference
    device, which computes them exactly so; other targets refuse them. Products of floats of 8 bits have those of warpgroups then, or refuse; with
    "sm_90:warps" those of warps. None leaves them to the target.

    For NVIDIA GPUs and CPUs: `interruptible` lets loops look at a flag, so that a dispatch with a timeout can be ended. On a CPU, what a signal handler raises
    ends the kernel as well, as KeyboardInterrupt does; resident buffers then hold what it had written. It costs some 5 % there, in loops of few instructions a
    quarter, and 0.1 ms a launch, whose work is done by threads of its own.

    For NVIDIA GPUs: `persistent` launches as many
    workgroups as the device holds at once, each of which walks through workgroups of the grid. `indirect` has these read the grid from memory when the launch
    begins, as a `DispatchConfig.grid` that is a buffer wants it. A device that compiles a Program makes such code by itself where it is first asked for; an
    artifact needs the option. `dependent`, from sm_90 on, lets the kernel be
    started while the one before it still runs, which it waits for before it touches memory. `boxes`, for sm_90a, says whether the hardware copies the factors
    of products on tensor cores by whole boxes (TMA), in place of invocations, where rows are multiples of 16 bytes that begin on one. None is true there, but
    beside `persistent`, `interruptible` and `codegen="nvvm"`, with which it does not go.

    Numerics: "strict" rounds every operation once and keeps subnormal numbers. "fast" takes products and sums together, and on PTX
    computes f32 by approximate instructions and flushes its subnormal numbers, within the bounds that `lowering/FAST.md` states;
    NaN, infinities and integers mean what they always do. "native" is what the device does of itself. Fast on a target that computes
    strictly anyway is strict, and on wgpu native; what the code follows is in `pipeline.numerics`.
    """

    workgroup: tuple[int, int, int] | None = None
    numerics: Numerics | None = None
    codegen: Literal["llvm", "nvvm"] = "llvm"
    opt: int = 3
    debug: bool = False
    interruptible: bool = False
    persistent: bool = False
    dependent: bool = False
    indirect: bool = False
    boxes: bool | None = None
    asserts: bool = True
    print_bytes: int = 1 << 16
    tensor: str | None = None

    def __post_init__(self) -> None:
        wrong = [
            Missing(f"option {name}={shown(getattr(self, name))}", help=f"it is {wanted}")
            for name, (fits, wanted) in _FITS.items()
            if not fits(getattr(self, name))
        ]
        if wrong:
            raise Unsupported("vyre-py", wrong)

    @property
    def walks(self) -> bool:
        """Whether workgroups walk through the grid."""
        return self.persistent or self.indirect

    @classmethod
    def given(cls, options: CompileOptions | None) -> CompileOptions:
        """What a caller gave, or the defaults for None. Raises Unsupported for anything else."""
        if options is None:
            return cls()
        if not isinstance(options, cls):
            raise Unsupported("vyre-py", [Missing(f"options {shown(options)}", help="they are a CompileOptions")])
        return options

    def refuse(self, who: str, honoured: frozenset[str], numerics: Sequence[Numerics] = ()) -> None:
        """Raises Unsupported that names every field which differs from its default and is not in `honoured`; of the rules of floating
        point those in `numerics` are honoured."""
        if self.numerics in numerics:
            honoured |= {"numerics"}
        honoured |= _EVERYWHERE
        changed = [f.name for f in fields(self) if getattr(self, f.name) != f.default and f.name not in honoured]
        if changed:
            raise Unsupported(who, [Missing(f"option {name}={getattr(self, name)!r}") for name in changed])
