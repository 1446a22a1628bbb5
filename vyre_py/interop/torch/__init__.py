"""PyTorch: Programs as its operators (`op`), and a backend of `torch.compile` that is known as "vyre", whose kernels `programs`
shows, and whose problems on a GPU `raise_problems` raises; and models as compiled Programs that run without PyTorch (`export`).

Needs the extra `torch`; nothing of PyTorch is imported before this module. The backend is an entry point of the package, so that
`torch.compile(model, backend="vyre")` needs no import.
"""

from __future__ import annotations

from vyre_py.ir.extras import with_extra

with with_extra("torch", __name__):
    from vyre_py.interop.torch.exporting import export
    from vyre_py.interop.torch.gpu_kernels import raise_problems
    from vyre_py.interop.torch.operators import op
    from vyre_py.interop.torch.runtime import programs

__all__ = ["export", "op", "programs", "raise_problems"]
