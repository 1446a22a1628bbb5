"""Runs host code for 64-bit ARM on any machine: a CPU device whose kernels an emulator of an Armv8.0-A core runs, in the memory of this process.

The object is placed and linked by the loader's own code, at an address of the emulated machine. Arguments, buffers and scratch memory are at the addresses that
they have here; touching anything else fails.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import unicorn
from device_kinds import cpu_of_lanes
from unicorn import arm64_const as arm

from vyre_py.drivers.cpu.device import CpuDevice
from vyre_py.drivers.cpu.linker import place
from vyre_py.drivers.cpu.memory import HostMemory
from vyre_py.lowering.artifact.parts import Entry, Image, Part, Step
from vyre_py.lowering.target import Target

PAGE: Final = 4096
_ARM_LANES: Final = 4
# Where processes have no memory: above the heap of an interpreter that is loaded at a low address, and below all shared libraries. The code lies in the first
# 4 GiB, since some relocations hold 32 bits; the library is further away than a call reaches.
CODE, STACK, LIBRARY = 0xE000_0000, 0x3000_0000_0000, 0x5000_0000_0000
STACK_BYTES: Final = 1 << 20
RETURN: Final = LIBRARY  # where the kernel returns to
RET: Final = bytes.fromhex("c0035fd6")
_PARAMETERS: Final = [getattr(arm, f"UC_ARM64_REG_X{k}") for k in range(7)]
# What the library's functions do, over the addresses and numbers that they are given.
_FUNCTIONS: Final = {"memset": ctypes.memset, "memcpy": ctypes.memmove, "memmove": ctypes.memmove}


class Core:
    """An emulated core with one object in its memory. `called` counts the calls of library functions."""

    def __init__(self, code: bytes) -> None:
        self.lock = threading.Lock()
        self.called: list[str] = []
        self.names: list[str] = []
        self.failure = ""
        self.ranges: list[tuple[int, int]] = []
        self.mapped: list[tuple[int, int]] = []
        self.placed = place(code, "aarch64", PAGE)
        self.uc = uc = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        uc.ctl_set_cpu_model(arm.UC_CPU_ARM64_A53)
        uc.reg_write(arm.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # vectors are on
        memory = bytearray(self.placed.size_bytes)
        self.placed.fill(memory, CODE, self.resolve)
        self.map(0, self.placed.constants, unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC)
        self.map(self.placed.constants, self.placed.size_bytes, unicorn.UC_PROT_READ)
        uc.mem_write(CODE, bytes(memory))
        uc.mem_map(STACK, STACK_BYTES, unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE)
        uc.mem_map(LIBRARY, PAGE, unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC)
        uc.mem_write(LIBRARY, RET * (PAGE // len(RET)))
        uc.hook_add(unicorn.UC_HOOK_CODE, self.on_library, begin=LIBRARY + 4, end=LIBRARY + PAGE - 1)
        uc.hook_add(unicorn.UC_HOOK_MEM_READ_UNMAPPED | unicorn.UC_HOOK_MEM_WRITE_UNMAPPED, self.on_unmapped)

    def map(self, begin: int, end: int, protection: int) -> None:
        if begin < end:
            self.uc.mem_map(CODE + begin, end - begin, protection)

    def resolve(self, name: str) -> int:
        self.names.append(name)
        return LIBRARY + 4 * len(self.names)

    def on_library(self, uc: Any, address: int, size: int, _: Any) -> None:
        name = self.names[(address - LIBRARY) // 4 - 1]
        self.called.append(name)
        first, second, count = (uc.reg_read(register) for register in _PARAMETERS[:3])
        if name not in _FUNCTIONS or not self.is_ours(first, count):
            self.failure = f"{name}({first:#x}, {second:#x}, {count})"
            uc.emu_stop()
            return
        _FUNCTIONS[name](first, second & 0xFF if name == "memset" else second, count)

    def is_ours(self, address: int, count: int) -> bool:
        return any(begin <= address and address + count <= end for begin, end in self.ranges)

    def on_unmapped(self, uc: Any, access: int, address: int, size: int, value: int, _: Any) -> bool:
        self.failure = f"{size} bytes at {address:#x} belong to nobody"
        return False

    def see(self, ranges: list[tuple[int, int]]) -> None:
        """Maps the pages of all ranges where they are in this process: before the core runs. Raises UcError where the core has memory of its own."""
        self.ranges = ranges
        for begin, end in sorted((begin & -PAGE, -(-end // PAGE) * PAGE) for begin, end in ranges if begin < end):
            if self.mapped and begin <= self.mapped[-1][1]:
                self.mapped[-1] = self.mapped[-1][0], max(end, self.mapped[-1][1])
            else:
                self.mapped.append((begin, end))
        for begin, end in self.mapped:
            self.uc.mem_map_ptr(begin, end - begin, unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE, begin)

    def call(self, symbol: str, arguments: tuple[int, ...], ranges: list[tuple[int, int]]) -> None:
        """Calls a function of the object, which may touch the memory of this process in `ranges`, from address to address."""
        with self.lock:
            self.see(ranges)
            for register, argument in zip(_PARAMETERS, arguments, strict=False):
                self.uc.reg_write(register, argument)
            self.uc.reg_write(arm.UC_ARM64_REG_SP, STACK + STACK_BYTES)
            self.uc.reg_write(arm.UC_ARM64_REG_LR, RETURN)
            try:
                self.uc.emu_start(CODE + self.placed.offset(symbol), RETURN)
            except unicorn.UcError as error:
                raise AssertionError(f"{error} at {self.uc.reg_read(arm.UC_ARM64_REG_PC):#x}; {self.failure}") from error
            finally:
                for begin, end in self.mapped:
                    self.uc.mem_unmap(begin, end - begin)
                self.mapped.clear()
            assert not self.failure, self.failure


    def result(self) -> int:
        """What the last call left in the register of results."""
        return int(self.uc.reg_read(_PARAMETERS[0]))


class ArmKernel:
    """What the CPU device launches."""

    def __init__(self, device: ArmDevice, image: Image, entry: Entry) -> None:
        self.device, self.symbol = device, entry.symbol
        self.core = Core(image.code)
        self.scratch_bytes = entry.details["scratch_bytes"]

    def run(self, block: int, scratch: int, *rest: int) -> None:
        ranges = [(block, block + PAGE), (scratch, scratch + self.scratch_bytes), *self.device.ranges]
        self.core.call(self.symbol, (block, scratch, *rest), ranges)
        self.device.called += self.core.called

    def prepared(self, block: int, scratch: int, *rest: int) -> Callable[[], None]:
        return partial(self.run, block, scratch, *rest)


class ArmDevice(CpuDevice):
    """A CPU device of another architecture."""

    def __init__(self) -> None:
        super().__init__(0)
        self.target = Target("host", "aarch64")
        self.ranges: list[tuple[int, int]] = []
        self.called: list[str] = []

    def _fit(self, part: Part) -> int | None:
        return 0 if part.target.arch == self.target.arch else None

    def _allocate(self, size_bytes: int) -> HostMemory:
        memory = super()._allocate(size_bytes)
        self.ranges.append((memory.address, memory.address + -(-size_bytes // 64) * 64))
        return memory

    def _load_entry(self, step: Step, image: Image, entry: Entry) -> Any:
        return ArmKernel(self, image, entry)


def cpu_or_arm(lanes: int) -> CpuDevice:
    """The CPU, whose kernels have so many lanes; where those are 4, the device of another architecture, whose have as many."""
    return ArmDevice() if lanes == _ARM_LANES else cpu_of_lanes(lanes)
