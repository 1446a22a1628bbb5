"""Bound launches as C sees them: `vyre_launch_t` of `include/vyre.h`, over ctypes. How one runs is each device kind's own native code."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.native.structs import c_struct
from vyre_py.ir.imports import imported
from vyre_py.ir.language.nodes import Access
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.layout import Layout, SlotKind

if TYPE_CHECKING:
    from vyre_py.drivers.launch import Launch, LaunchPlan

__all__ = ["ABI_VERSION", "ACCESSES", "ALIVE_FUNCTION", "DEVICES", "LAUNCH", "CLaunch", "CLaunchWords", "CParameter", "c_launch_of"]

ABI_VERSION: Final = 1
# VYRE_DEVICE_*: the kinds of device that have a module `c_launch`, whose `make` gives a launch's descriptor.
DEVICES: Final[Mapping[str, int]] = {"cpu": 1, "cuda": 2}
_BUFFER, _VALUE = 1, 2
ACCESSES: Final[Mapping[Access, int]] = {Access.READ: 1, Access.WRITE: 2, Access.READ_WRITE: 3}


class CParameter(ctypes.Structure):
    """`vyre_parameter_t`."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("type", ctypes.c_char_p), ("kind", ctypes.c_uint32), ("access", ctypes.c_uint32), ("offset_bytes", ctypes.c_uint32),
        ("size_bytes", ctypes.c_uint32), ("part_bytes", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
    )  # fmt: skip


class CLaunchWords(ctypes.Structure):
    """`vyre_launch_t`."""

    _fields_ = (
        ("abi_version", ctypes.c_uint32), ("size_bytes", ctypes.c_uint32), ("run", ctypes.c_void_p), ("device", ctypes.c_uint32),
        ("ordinal", ctypes.c_uint32), ("grid", ctypes.c_uint32 * 3), ("workgroup", ctypes.c_uint32 * 3), ("name", ctypes.c_char_p),
        ("arguments", ctypes.c_void_p), ("arguments_bytes", ctypes.c_uint64), ("parameters", ctypes.POINTER(CParameter)),
        ("parameter_count", ctypes.c_uint64), ("function", ctypes.c_void_p), ("workgroup_bytes", ctypes.c_uint64), ("scratch_bytes", ctypes.c_uint64),
        ("context", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("state", ctypes.c_void_p),
    )  # fmt: skip


LAUNCH: Final = c_struct("Launch", CLaunchWords)

# Whether all of so many live words, whose addresses follow one another, say that their memory was not freed.
ALIVE_FUNCTION: Final = """
define internal i1 @all_alive(i64 %count, ptr %words) {
entry:
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %body, label %alive
body:
  %next = add i64 %at, 1
  %word = load ptr %at of %words
  %value = load i64, ptr %word
  %dead = icmp eq i64 %value, 0
  br i1 %dead, label %freed, label %head
alive:
  ret i1 true
freed:
  ret i1 false
}
"""


def _parameters(layout: Layout) -> list[CParameter]:
    found = []
    for slot in layout.slots:
        if slot.kind is SlotKind.BUFFER:
            assert slot.memory is not None
            words = (_BUFFER, ACCESSES[slot.memory.access], slot.offset_bytes, slot.size_bytes, 0, 0)
            found.append(CParameter(slot.name.encode(), slot.memory.type.name.encode(), *words))
        elif slot.kind is SlotKind.PARAM:
            name, begin = slot.source
            found.append(CParameter(name.encode(), slot.type.name.encode(), _VALUE, 0, slot.offset_bytes, slot.size_bytes, begin, 0))
    return found


class CLaunch:
    """A launch's descriptor, and all that it points to. A device kind fills in what is its own, at once and whenever the launch has changed (`follow`).

    Attribute: `words`, the descriptor itself.
    """

    __slots__ = ("_held", "words")

    def __init__(self, plan: LaunchPlan, run: int) -> None:
        """`run` is the address of the native code."""
        parameters = _parameters(plan.step.layout)
        table = (CParameter * max(1, len(parameters)))(*parameters)
        self.words = CLaunchWords(
            abi_version=ABI_VERSION, size_bytes=ctypes.sizeof(CLaunchWords), run=run, device=DEVICES[plan.device.kind], ordinal=plan.device.ordinal,
            grid=plan.grid, workgroup=plan.workgroup, name=plan.binding.interface.name.encode(), arguments_bytes=plan.step.layout.size_bytes,
            parameters=table, parameter_count=len(parameters), workgroup_bytes=plan.step.workgroup_bytes,
        )  # fmt: skip
        self._held: tuple[Any, ...] = (table, parameters)  # whose texts the table points to

    @property
    def address(self) -> int:
        """Where the descriptor is, for as long as this object lives."""
        return ctypes.addressof(self.words)

    def follow(self, launch: Launch) -> None:
        """Takes over what was changed about the launch. One over no workgroups has nothing that could change."""


_lock = threading.Lock()


def c_launch_of(launch: Launch) -> CLaunch:
    """The one descriptor of a launch, made when it is first asked for. Raises Unsupported on devices that have none; DeviceLost."""
    with _lock:
        if launch._c_launch is None:
            launch.plan.device.require_usable()
            launch._c_launch = _made(launch)
        return launch._c_launch


def _made(launch: Launch) -> CLaunch:
    device = launch.plan.device
    if device.kind not in DEVICES:
        raise Unsupported(device.name, [Missing("launch.c_address", help=f"devices that have it are {', '.join(DEVICES)}")])
    if launch.plan.report is not None:
        help_ = "nobody waits there for what it tells: compile it with CompileOptions(asserts=False, print_bytes=0)"
        raise Unsupported(device.name, [Missing("launch.c_address of a Program that asserts or prints", help=help_)])
    made: CLaunch = imported(f"vyre_py.drivers.{device.kind}.c_launch").make(launch)
    return made


def _forked() -> None:
    """In a forked child: a thread of the parent may have held the lock."""
    global _lock  # noqa: PLW0603 - the one lock of the process
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
