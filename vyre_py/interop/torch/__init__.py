"""PyTorch: Programs as its operators (`op`). Needs the extra `torch`; nothing of PyTorch is imported before this module is."""

from __future__ import annotations

from vyre_py.interop.torch.operators import op

__all__ = ["op"]
