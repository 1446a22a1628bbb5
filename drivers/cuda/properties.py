"""The properties and capabilities of a GPU, asked once; and which architecture to compile for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.errors import DeviceUnavailable
from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.llvm.gpu.architectures import ARCHITECTURES, fitting_archs, generation
from vyre_py.lowering.llvm.gpu.machine_code import nvjitlink

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context

__all__ = ["Properties", "choose_arch", "probe"]

# Statuses with which a driver refuses code that is not for it: another architecture may do.
_NOT_FOR_IT: Final = frozenset(
    {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "CUDA_ERROR_INVALID_PTX", "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_INVALID_SOURCE"}
)

# Statuses with which it compiles nothing at all.
_NO_COMPILER: Final = frozenset({"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "CUDA_ERROR_JIT_COMPILATION_DISABLED"})

# The environment's variables that forbid the driver to compile.
_SWITCHES: Final = ("CUDA_DISABLE_PTX_JIT", "CUDA_DISABLE_JIT")


@dataclass(frozen=True, slots=True)
class Properties:
    """A GPU as its driver describes it. Sizes in bytes, clocks in kHz (0 where the driver keeps them to itself); `driver_version` as CUDA counts,
    (13, 0). `peers` are the ordinals of the devices whose memory this one reaches directly."""

    name: str
    compute_capability: tuple[int, int]
    driver_version: tuple[int, int]
    memory_bytes: int
    multiprocessors: int
    l2_bytes: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    subgroup_size: int
    workgroup_invocations: int
    multiprocessor_invocations: int
    multiprocessor_registers: int
    workgroup_bytes: int
    multiprocessor_workgroup_bytes: int
    grid: tuple[int, int, int]
    cooperative_launch: bool
    clusters: bool
    memory_pools: bool
    integrated: bool
    ecc: bool
    pci_bus_id: str
    peers: tuple[int, ...]

    @property
    def description(self) -> str:
        """One line for people."""
        major, minor = self.compute_capability
        version = ".".join(map(str, self.driver_version))
        return f"{self.name}, sm_{major}{minor}, {self.memory_bytes >> 20} MiB, driver for CUDA {version}"


# Field -> the attribute that it is read from.
_ATTRIBUTES: Final = {
    "multiprocessors": "MULTIPROCESSOR_COUNT", "l2_bytes": "L2_CACHE_SIZE", "clock_khz": "CLOCK_RATE", "memory_clock_khz": "MEMORY_CLOCK_RATE",
    "memory_bus_bits": "GLOBAL_MEMORY_BUS_WIDTH", "subgroup_size": "WARP_SIZE", "workgroup_invocations": "MAX_THREADS_PER_BLOCK",
    "multiprocessor_invocations": "MAX_THREADS_PER_MULTIPROCESSOR", "multiprocessor_registers": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "workgroup_bytes": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", "multiprocessor_workgroup_bytes": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
}  # fmt: skip
_ABILITIES: Final = {
    "cooperative_launch": "COOPERATIVE_LAUNCH", "clusters": "CLUSTER_LAUNCH", "memory_pools": "MEMORY_POOLS_SUPPORTED", "integrated": "INTEGRATED",
    "ecc": "ECC_ENABLED",
}  # fmt: skip


def probe(context: Context) -> Properties:
    """Asks the driver. Raises what it answers instead of a name, a version, a size or an attribute."""
    cuda, device, who = context.cuda, context.device, context.name
    name = context.ok(cuda.cuDeviceGetName(128, device), f"{who} has no name")
    version = context.ok(cuda.cuDriverGetVersion(), f"{who} has no driver version")
    bus = context.ok(cuda.cuDeviceGetPCIBusId(32, device), f"{who} has no place on the bus")
    x, y, z = [context.attribute(f"MAX_GRID_DIM_{axis}") for axis in "XYZ"]
    numbers: dict[str, Any] = {field: context.attribute(attribute) for field, attribute in _ATTRIBUTES.items()}
    abilities: dict[str, Any] = {field: bool(context.attribute(attribute)) for field, attribute in _ABILITIES.items()}
    return Properties(
        name=_text(name), pci_bus_id=_text(bus), grid=(x, y, z), peers=_peers(context), driver_version=(version // 1000, version % 1000 // 10),
        compute_capability=(context.attribute("COMPUTE_CAPABILITY_MAJOR"), context.attribute("COMPUTE_CAPABILITY_MINOR")),
        memory_bytes=int(context.ok(cuda.cuDeviceTotalMem(device), f"{who} does not say its memory")), **numbers, **abilities,
    )  # fmt: skip


def _text(given: bytes) -> str:
    return given.split(b"\0", 1)[0].decode(errors="replace")


def _peers(context: Context) -> tuple[int, ...]:
    cuda, doing = context.cuda, f"{context.name} does not say which devices it reaches"
    found = []
    for ordinal in range(int(context.ok(cuda.cuDeviceGetCount(), doing))):
        other = context.ok(cuda.cuDeviceGet(ordinal), doing)
        if int(other) != int(context.device) and context.ok(cuda.cuDeviceCanAccessPeer(context.device, other), doing):
            found.append(ordinal)
    return tuple(found)


def _probe_text(arch: str) -> bytes:
    """The least PTX of the version and for the architecture that compiled Programs have."""
    return f".version {ARCHITECTURES[arch]}\n.target {arch}\n.address_size 64\n.visible .entry probe()\n{{\n ret;\n}}\n".encode()


def choose_arch(context: Context, capability: tuple[int, int]) -> tuple[str, bool]:
    """The architecture to compile for: the GPU's own if the driver loads code for it, else the newest before it that it loads; and whether it loads PTX,
    since it may have no compiler, or must not use it. Then the architecture is the GPU's own, and machine code alone is loaded.

    Raises DeviceUnavailable for GPUs before sm_70, and for a driver that loads none.
    """
    fitting = fitting_archs(*capability)
    if not fitting:
        found = f"its compute capability is {capability[0]}.{capability[1]}, 7.0 is needed"
        raise DeviceUnavailable(f"{context.name} is too old", meaning=found, remedy="choose another device")
    for arch in fitting:
        status = _loaded(context, _probe_text(arch))
        forbidden = status.name in _NO_COMPILER if status else _switched_off()
        if forbidden and _loads_machine_code(context, fitting[0], capability):
            return fitting[0], False
        if not status:
            return arch, True
        if status.name not in _NOT_FOR_IT:
            raise context.failure(status, f"{context.name} loads no code", DeviceUnavailable)
    raise DeviceUnavailable(
        f"{context.name} loads no code that this compiler writes", meaning=f"tried {', '.join(fitting)}", cause="an old driver",
        remedy="update NVIDIA's display driver",
    )  # fmt: skip


def _switched_off() -> bool:
    """Whether the driver is told to compile no PTX. It loads the probe even then where its own cache on disk has it from another process."""
    return any(os.environ.get(name, "0").strip() not in ("", "0") for name in _SWITCHES)


def _loaded(context: Context, code: bytes) -> Any:
    """The status with which the driver loads code, which is unloaded again."""
    status, *found = context.cuda.cuModuleLoadData(code)
    if not status:
        context.note(context.cuda.cuModuleUnload(*found), f"{context.name} cannot unload code")
    return status


def _loads_machine_code(context: Context, arch: str, capability: tuple[int, int]) -> bool:
    """Whether the driver loads machine code of the GPU's own architecture: believed where there is nothing here to make some with."""
    if generation(arch) != 10 * capability[0] + capability[1]:
        return False
    try:
        code = nvjitlink.link(_probe_text(arch), arch, name="probe").code
    except Unsupported:
        return True
    return not _loaded(context, code)
