"""Ops that the backend leaves to PyTorch: each call of one is PyTorch's own op between our kernels, and a line of the log names it once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import sympy
import torch
from torch._inductor import decomposition, ir, lowering, utils
from torch._inductor.codegen.common import pointwise_overrides_data
from torch._inductor.virtualized import V

from vyre_py.interop.torch.elementwise import OPS, ElementwiseOps
from vyre_py.interop.torch.scheduling import KERNELS
from vyre_py.interop.torch.terms import HALVES

__all__ = ["lowered_for_us"]

_log: Final = logging.getLogger("vyre_py.interop.torch")
_lock: Final = threading.RLock()
_named: Final[set[str]] = set()
_ATOMIC: Final = frozenset({torch.int32, torch.int64, torch.uint32, torch.uint64, torch.float32, torch.float64})
aten: Final = torch.ops.aten


def _name_once(op: str) -> None:
    if op not in _named:
        _named.add(op)
        _log.warning("the backend vyre has no %s: PyTorch's own op runs in its place", op)


def _left_to_torch(op: Any, of: str = "") -> Callable[..., Any]:
    handler = lowering.fallback_handler(op, add_to_fallback_set=False)

    def lowered(*args: Any, **kwargs: Any) -> Any:
        _name_once(f"{op}{of}")
        return handler(*args, **kwargs)

    return lowered


def _of_halves_left_to_torch(op: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """An op that cannot be computed in f32 and rounded."""
    ours = _left_to_torch(op, " of half precision")

    def lowered(*args: Any, **kwargs: Any) -> Any:
        halves = any(isinstance(value, ir.TensorBox) and value.get_dtype() in HALVES for value in args)
        return (ours if halves else original)(*args, **kwargs)

    return lowered


def _no_atomic_add(dtype: Any) -> bool:
    if dtype in _ATOMIC:
        return False
    _name_once(f"atomic addition of {dtype}")
    return True


def _flat(original: Callable[..., Any]) -> Callable[..., Any]:
    """argmax or argmin of all elements: of one axis, so that a place is the one that PyTorch means whatever the order of the loops."""

    def lowered(x: Any, axis: Any = None, keepdims: bool = False, **kwargs: Any) -> Any:
        rank = len(x.get_size())
        if axis is not None or rank < 2:
            return original(x, axis, keepdims, **kwargs)
        found = original(lowering.view(x, [utils.sympy_product(x.get_size())]), 0, False, **kwargs)
        return lowering.view(found, [1] * rank) if keepdims else found

    return lowered


@cache
def _lowerings() -> dict[Any, Callable[..., Any]]:
    """The lowerings that are ours, by op."""
    missing = [data.name for name, data in pointwise_overrides_data.items() if name not in OPS and not _is_defined(name)]
    ours = {op: _left_to_torch(op) for name in missing if hasattr(aten, name) for op in _overloads(getattr(aten, name))}
    for packet in (aten.argmax, aten.argmin):
        ours |= {op: _flat(lowering.lowerings[op]) for op in (packet, *_overloads(packet)) if op in lowering.lowerings}
    ours |= {op: _of_halves_left_to_torch(op, lowering.lowerings[op]) for op in _overloads(aten.nextafter)}
    return ours


def _is_defined(name: str) -> bool:
    return name in vars(ElementwiseOps)


def _overloads(packet: Any) -> list[Any]:
    """The overloads of an op that are lowered."""
    return [op for name in packet.overloads() if (op := getattr(packet, name)) in lowering.lowerings]


def _scatter_left_to_torch(original: Callable[..., bool]) -> Callable[..., bool]:
    def asked(op: Any, reduction: str | None, dtype: Any, *others: Any) -> bool:
        return bool(original(op, reduction, dtype, *others)) or (reduction is not None and _no_atomic_add(dtype))

    return asked


def _put_from_elsewhere(original: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's own op that writes by index refuses values that lie in the memory that it changes: they are copied first."""

    def put(x: Any, indices: Any, values: Any, accumulate: Any) -> Any:
        x.realize()
        shared = set(x.get_read_names()) & set(values.get_read_names())
        return original(x, indices, lowering.clone(values) if shared else values, accumulate)

    return put


def _short_scans(original: Callable[..., Any]) -> Callable[..., Any]:
    """Scans of as many elements as kernels of their device take; others, and those of a number that is not known, are left to PyTorch where it has them."""

    def create(device: Any, dtypes: Sequence[Any], inner_fns: Any, size: Sequence[Any], axis: int, *args: Any, **kwargs: Any) -> Any:
        most = KERNELS[device.type].most_scanned
        long = most is not None and not V.graph.sizevars.statically_known_true(sympy.Le(size[axis], most))
        if long and kwargs.get("can_fallback_to_aten", True):
            _name_once(f"scan of more than {most} elements on a GPU")
            return [None] * len(dtypes)
        return original(device, dtypes, inner_fns, size, axis, *args, **kwargs)

    return create


@contextmanager
def lowered_for_us() -> Iterator[None]:
    """While a graph is lowered: what we lack is left to PyTorch. Another compilation in the process meanwhile leaves it, too: the results are the same."""
    ours, table = _lowerings(), lowering.lowerings
    additions, scatters = "needs_fallback_due_to_atomic_add_limitations", "use_scatter_fallback"
    with _lock:
        theirs = {op: table[op] for op in ours}
        asked = [(module, name, getattr(module, name)) for module in (lowering, decomposition) for name in (additions, scatters) if hasattr(module, name)]
        scans, puts = vars(ir.Scan)["create"], lowering.index_put_fallback
        table.update(ours)
        ir.Scan.create = staticmethod(_short_scans(ir.Scan.create))
        lowering.index_put_fallback = _put_from_elsewhere(puts)
        for module, name, original in asked:
            setattr(module, name, _no_atomic_add if name == additions else _scatter_left_to_torch(original))
        try:
            yield
        finally:
            table.update(theirs)
            ir.Scan.create, lowering.index_put_fallback = scans, puts
            for module, name, original in asked:
                setattr(module, name, original)
