"""How Inductor comes to our kernels: a scheduling of its own, chosen for each compilation by `config.cpu_backend`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import sympy
from torch._inductor import config
from torch._inductor.codegen.common import BackendFeature, device_codegens, init_backend_registration
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.codegen.simd_kernel_features import EnableReduction
from torch._inductor.utils import get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from vyre_py.interop.hidden_device import gpu_device, host_device
from vyre_py.interop.torch.ahead import begin_compiling
from vyre_py.interop.torch.gpu.squares import SquareKernel
from vyre_py.interop.torch.kernels import VyreKernel
from vyre_py.interop.torch.owners import rows_and_columns

__all__ = ["KERNELS", "VyreScheduling", "backend_name", "register"]

_PREFIX: Final = "vyre "
# Type of device -> what generated modules import.
_IMPORTS: Final = {
    "cpu": "from vyre_py.interop.torch.runtime import kernel as vyre_kernel",
    "cuda": "from vyre_py.interop.torch.gpu_kernels import gpu_kernel as vyre_gpu_kernel",
}


class VyreScheduling(SIMDScheduling):  # type: ignore[misc]  # PyTorch has no types for this checker
    """Fuses as all of Inductor's SIMD backends do, and makes Programs."""

    def __init__(self, scheduler: Any, kind: str) -> None:
        super().__init__(scheduler)
        self.kernel_type = KERNELS[kind]

    @classmethod
    def get_backend_features(cls, device: Any) -> Any:
        """What lowering may count on."""
        del device
        return OrderedSet([
            BackendFeature.INPLACE_BUFFERS, BackendFeature.MASKED_SCATTER_WITH_INDEX, BackendFeature.SCAN, BackendFeature.TUPLE_REDUCTION,
        ])  # fmt: skip

    @classmethod
    def get_tiling_and_scores(cls, node_schedule: Any, numel: Any, reduction_numel: Any = sympy.S.One, coalesce_analysis: Any = None) -> Any:
        """One axis of points, and one of elements that are reduced; without a reduction two of points, where some memory is contiguous along another axis, or
        invocations own columns."""
        del coalesce_analysis
        if reduction_numel == 1:
            nodes = list(EnableReduction.filter(node_schedule))
            owned = rows_and_columns(nodes)
            if owned and all(VyreKernel.is_compatible(owned, node.get_ranges(), reduction_numel) for node in nodes):
                return cls.create_tiling(owned, [reduction_numel]), None
            return super().get_tiling_and_scores(node_schedule, numel, reduction_numel, None)
        return cls.create_tiling([numel], [reduction_numel]), None

    def define_kernel(self, src_code: str, node_schedule: Sequence[Any], kernel: Any) -> str:
        """Writes a kernel's text to the generated module, once; gives its name there."""
        wrapper, device = V.graph.wrapper_code, V.graph.get_current_device_or_throw()
        if src_code in wrapper.src_to_kernel:
            return str(wrapper.src_to_kernel[src_code])
        name = f"vyre_{wrapper.next_kernel_suffix()}"
        wrapper.src_to_kernel[src_code] = name
        wrapper.add_import_once(_IMPORTS[device.type])
        begin_compiling(kernel.text, host_device() if device.type == "cpu" else gpu_device(device.index))
        origins, detailed = get_kernel_metadata(node_schedule, wrapper)
        wrapper.define_kernel(name, src_code, f"{origins}\n{detailed}")
        return name


# Type of device -> what writes the text of its kernels.
KERNELS: Final[dict[str, type[VyreKernel]]] = {"cpu": VyreKernel, "cuda": SquareKernel}


@cache
def backend_name() -> str:
    """What `config.cpu_backend` and `config.cuda_backend` are while we compile. It holds a digest of what makes our kernels' text, and so do the keys of
    PyTorch's caches then."""
    digest = hashlib.sha256(version("vyre-py").encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return _PREFIX + digest.hexdigest()[:16]


@cache
def register() -> None:
    """Puts our scheduling beside those that are there: it is taken where the configuration of the device's type is `backend_name()`."""
    init_backend_registration()
    for kind in _IMPORTS:
        if kind in device_codegens:
            _stand_beside(device_codegens[kind], kind)


def _stand_beside(entry: Any, kind: str) -> None:
    others: Callable[[Any], Any] = entry.scheduling
    entry.scheduling = lambda scheduler: VyreScheduling(scheduler, kind) if getattr(config, f"{kind}_backend").startswith(_PREFIX) else others(scheduler)
