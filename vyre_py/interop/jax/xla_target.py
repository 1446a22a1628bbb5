"""Targets of XLA's custom calls: a handler for each Program, made once, registered by a name that says which code it is, and there for good."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import threading
from dataclasses import replace
from functools import cache
from typing import Final

import jax

from vyre_py.drivers.callable import CallEntry
from vyre_py.drivers.cores import core_count
from vyre_py.drivers.cpu.launch import QUICK_INVOCATIONS
from vyre_py.drivers.cpu.shared_call import shared_call
from vyre_py.drivers.pipeline import Pipeline
from vyre_py.drivers.sharing.c_callable import CCallableWords
from vyre_py.interop.hidden_device import gpu_device
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.passes.stored_params import with_stored_params
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.llvm.adapters.xla_ffi import (
    DATA_TYPES,
    HANDLER_SYMBOL,
    XlaBuffer,
    XlaFace,
    XlaParam,
    handler_text,
    refusing_text,
    streaming_text,
)

__all__ = ["Form", "target_of"]

_lock = threading.Lock()
# Name -> the entries that its handlers call. Functions that JAX has compiled may do so for as long as the process lives, and nothing says when they are gone.
_targets: Final[dict[str, tuple[CallEntry, ...]]] = {}
_GPUS: Final = "CUDA"  # XLA's platform; JAX lowers for it only where it has such a device


@dataclass(frozen=True, slots=True)
class Form:
    """What a call's operands are: the names of the buffers that are `fresh`, of which there is a result alone, every element of which is written; of the
    `pairs`, buffers of two components that go as one complex number; and of the params that are `traced`, not numbers known when JAX traces the call."""

    fresh: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    traced: tuple[str, ...] = ()


def _face(pipeline: Pipeline, form: Form, params_bytes: int) -> XlaFace:
    """How XLA calls the handler: operands are the buffers in order, one for each result too, whose memory the result takes over, then the traced params."""
    interface = pipeline.artifact.interface
    buffers, operands, results = [], 0, 0
    for memory in interface.buffers:
        pair = memory.name in form.pairs
        type_ = f"complex{16 * memory.type.scalar.size_bytes}" if pair else memory.type.scalar.name
        lanes = memory.type.lanes if memory.type.is_vector and not pair else 0
        result = results if memory.access.writes else None
        operand = None if memory.name in form.fresh else operands
        buffers.append(XlaBuffer(operand, result, DATA_TYPES[type_], memory.rank, lanes))
        results += memory.access.writes
        operands += operand is not None
    params, at = list[XlaParam](), 0
    for param in interface.params:
        if param.name in form.traced:
            lanes = param.type.lanes if param.type.is_vector else 0
            params.append(XlaParam(operands + len(params), DATA_TYPES[param.type.scalar.name], lanes, at, param.type.size_bytes))
        at += param.type.size_bytes
    return XlaFace(operands + len(params), results, tuple(buffers), tuple(params), len(interface.dims), params_bytes)


def _name(pipeline: Pipeline, form: Form) -> str:
    """The target's name. It says which code it is, and nothing of this process: XLA may keep what it compiled, and another process load it."""
    artifact = pipeline.artifact
    parts = (artifact.code_digest.hex(), artifact.interface_digest.hex(), sorted(pipeline.part.made_by.items()), form)
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()
    return f"vyre.{re.sub('[^A-Za-z0-9_]', '_', pipeline.name)[:64]}.{digest[:32]}"


def target_of(pipeline: Pipeline, form: Form) -> str:
    """The name of the target that runs a pipeline, made and registered where it is not yet."""
    name = _name(pipeline, form)
    with _lock:
        if name not in _targets:
            _targets[name] = _made(name, pipeline, form)
    return name


def _made(name: str, pipeline: Pipeline, form: Form) -> tuple[CallEntry, ...]:
    entry = pipeline.callable()
    words = CCallableWords.from_address(entry.c_address)
    threads = core_count() - 1 if os.name == "posix" else 0
    quick = QUICK_INVOCATIONS if pipeline.part.steps[0].streaming else 0
    face = _face(pipeline, form, words.params_bytes)
    text = handler_text(pipeline.name, face, entry.c_address, shared_call() if threads else words.call, threads, quick)
    _register(name, _linked(text), "cpu")
    entries, handler = _on_gpus(pipeline, face, form)
    _register(name, handler, _GPUS)
    return entry, *entries


def gpu_ordinals() -> list[int]:
    """The numbers of JAX's own GPUs; none where it has no backend for them."""
    try:
        found = jax.local_devices(backend="cuda")
    except RuntimeError:  # JAX's word for a backend that is not there
        return []
    return sorted(device.local_hardware_id for device in found)


def _on_gpus(pipeline: Pipeline, face: XlaFace, form: Form) -> tuple[tuple[CallEntry, ...], int]:
    """The entries of each GPU of JAX's, and the handler. Params that are traced lie on the device, so that another Program reads them there. Raises what
    compiling and loading raise, and Unsupported as `c_address` does."""
    assert pipeline._source is not None  # `JaxFunction` compiles it
    program, options = pipeline._source
    read = with_stored_params(program, form.traced) if form.traced else program
    if read is None:
        return (), _refusing("a param that is an array cannot go to a GPU here: give it as a number that is known when JAX traces the call")
    entries = {ordinal: gpu_device(ordinal).compile_native(read, options).callable() for ordinal in gpu_ordinals()}
    if not entries:
        return (), _refusing("JAX had no GPUs when the call was traced")
    table = [entries[ordinal].c_address if ordinal in entries else 0 for ordinal in range(max(entries) + 1)]
    return tuple(entries.values()), _linked(streaming_text(pipeline.name, _stored(pipeline, face, form), table))


def _stored(pipeline: Pipeline, face: XlaFace, form: Form) -> XlaFace:
    """The face of the Program that reads its traced params from memory."""
    places = [XlaBuffer(param.operand, None, param.data_type, 0, param.lanes, single=True) for param in face.params]
    kept, at = list[tuple[int, int]](), 0
    for param in pipeline.artifact.interface.params:
        kept += [] if param.name in form.traced else [(at, param.type.size_bytes)]
        at += param.type.size_bytes
    return replace(face, buffers=(*face.buffers, *places), params=(), kept=tuple(kept))


@cache
def _refusing(words: str) -> int:
    """A handler that refuses calls, and says why."""
    return _linked(refusing_text("vyre_call", words))


def _linked(text: str) -> int:
    return jit.link("vyre-xla", text, (HANDLER_SYMBOL,))[HANDLER_SYMBOL]


def _register(name: str, handler: int, platform: str) -> None:
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(ctypes.c_void_p(handler)), platform=platform)


def _forked() -> None:
    """In a forked child: a thread of the parent may have held the lock."""
    global _lock  # noqa: PLW0603 - the one lock of the process
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
