"""PyTorch: Programs as its operators (`op`), and a backend of `torch.compile` that is known as "vyre", whose kernels `programs`
shows.

Needs the extra `torch`; nothing of PyTorch is imported before this module. The backend is an entry point of the package, so that
`torch.compile(model, backend="vyre")` needs no import.
"""

from __future__ import annotations

from vyre_py.interop.torch.operators import op
from vyre_py.interop.torch.runtime import programs

__all__ = ["op", "programs"]
