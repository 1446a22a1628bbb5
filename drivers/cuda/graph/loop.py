"""Graphs that repeat themselves: a conditional node, whose body runs while a flag in device memory is not zero.

Two launches of one small kernel of our own set the node's condition: before the loop, and at the end of its body.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.cuda.graph.graph import CudaGraph, Replay
from vyre_py.drivers.cuda.graph.recorder import CudaRecorder, node_count
from vyre_py.drivers.cuda.launch.module import CudaModule
from vyre_py.drivers.cuda.native.call_list import LAUNCH, Call
from vyre_py.drivers.cuda.native.command_list import perform
from vyre_py.drivers.errors import LaunchError
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.lowering.artifact.parts import Image

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.device import CudaDevice

__all__ = ["capture_while", "has_loops"]

# The driver from which on graphs have conditional nodes, and kernels may set their conditions.
_DRIVER: Final = 12040

_SYMBOL: Final = "vyre_while"
# The condition is whether the flag is set and turns are left, of which this is then one less. The first launch of a replay says how many there are.
_CODE: Final = b"""
.version 7.0
.target sm_70
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry vyre_while(.param .u64 handle, .param .u64 flag, .param .u64 left, .param .u32 limit, .param .u32 first)
{
    .reg .pred %is_first, %is_set, %goes_on;
    .reg .b32 %limit, %first, %flag, %left, %condition;
    .reg .b64 %handle, %flag_at, %left_at;
    ld.param.u64 %handle, [handle];
    ld.param.u64 %flag_at, [flag];
    ld.param.u64 %left_at, [left];
    ld.param.u32 %limit, [limit];
    ld.param.u32 %first, [first];
    ld.volatile.global.u32 %flag, [%flag_at];
    ld.volatile.global.u32 %left, [%left_at];
    setp.ne.u32 %is_first, %first, 0;
    selp.b32 %left, %limit, %left, %is_first;
    setp.ne.u32 %is_set, %flag, 0;
    setp.ne.and.u32 %goes_on, %left, 0, %is_set;
    selp.u32 %condition, 1, 0, %goes_on;
    sub.u32 %left, %left, %condition;
    st.volatile.global.u32 [%left_at], %left;
    {
        .param .b64 its_handle;
        .param .b32 its_value;
        st.param.b64 [its_handle], %handle;
        st.param.b32 [its_value], %condition;
        call.uni cudaGraphSetConditional, (its_handle, its_value);
    }
    ret;
}
"""
_BLOCK: Final = struct.Struct("<QQQII")


def has_loops(device: CudaDevice) -> bool:
    """Whether the driver and its bindings have conditional nodes, and the driver compiles the kernel that sets their conditions: its own linker alone knows
    what that calls."""
    if not device.loads_ptx:
        return False
    status, version = device.context.cuda.cuDriverGetVersion()
    return not status and version >= _DRIVER and hasattr(device.context.cuda, "cuGraphConditionalHandleCreate")


class _Setter:
    """The kernel that sets a condition, for one loop: its argument block for a launch, and the word that counts turns."""

    def __init__(self, device: CudaDevice, module: CudaModule, handle: int, flag: Buffer, limit: int) -> None:
        self._device, self._module, self._flag, self.limit = device, module, flag, limit
        self._handle = handle
        self.left = device.upload(np.array([limit], np.uint32))

    def turns(self) -> int:
        """How many turns the last replay took, before the first one none; waits for it."""
        return self.limit - int(self.left.read()[0])

    def launch(self, first: bool) -> None:
        """Launches the kernel on the stream that is captured."""
        context = self._device.context
        flag = int(self._flag.handle) + self._flag.offset_bytes
        packed = _BLOCK.pack(self._handle, flag, int(self.left.handle), self.limit, first)
        block = (ctypes.c_char * len(packed)).from_buffer_copy(packed)
        arguments = (int(self._module.function), 1, 1, 1, 1, 1, 1, 0, int(context.stream), 0, 0)
        call = Call(context.function("cuLaunchKernel"), arguments, LAUNCH, ctypes.addressof(block), len(packed))
        perform(self._device, (call,), f"{context.name} cannot capture a loop")


class CudaLoop(CudaGraph):
    """A graph of `capture_while` that the device repeats by itself."""

    conditional = "device"
    __slots__ = ("_setter",)

    def __init__(self, device: CudaDevice, value: Any, nodes: int, replay: Replay, setter: _Setter) -> None:
        super().__init__(device, value, nodes, replay)
        self._setter = setter

    def turns(self) -> int:
        """How many times the last replay ran the body; waits for it."""
        return self._setter.turns()


def _conditional(device: CudaDevice, graph: Any, handle: Any) -> Any:
    """Adds a node after the one that the graph has; gives the graph that is its body."""
    context, cuda = device.context, device.context.cuda
    doing = f"{context.name} cannot make a loop"
    status, *found = cuda.cuGraphGetNodes(graph, 1)
    if status:
        raise context.failure(status, doing, LaunchError)
    nodes = found[0]
    parameters = cuda.CUgraphNodeParams()
    parameters.type = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    parameters.conditional.handle = handle
    parameters.conditional.type = cuda.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
    parameters.conditional.size = 1
    parameters.conditional.ctx = context.handle
    add = getattr(cuda, "cuGraphAddNode_v2", cuda.cuGraphAddNode)  # bindings of CUDA 12 have the form with edges under this name
    (status, *_) = add(graph, [nodes[0]], None, 1, parameters)
    if status:
        raise context.failure(status, doing, LaunchError)
    return cuda.CUgraph(int(parameters.conditional.phGraph_out[0]))


def capture_while(device: CudaDevice, flag: Buffer, function: Callable[..., Any], arguments: tuple[Any, ...], limit: int) -> CudaLoop:
    """A graph whose body is what a function enqueues, and which runs it while the flag is not zero, `limit` turns at most."""
    device.require_no_capture(f"{device.name} cannot make a loop")
    with device.context.entered():
        return _captured(device, flag, function, arguments, limit)


def _captured(device: CudaDevice, flag: Buffer, function: Callable[..., Any], arguments: tuple[Any, ...], limit: int) -> CudaLoop:
    context, cuda = device.context, device.context.cuda
    doing = f"{context.name} cannot make a loop"
    module = device.loop_module(Image("ptx", _CODE), _SYMBOL)
    graph = context.ok(cuda.cuGraphCreate(0), doing)
    try:
        handle = context.ok(cuda.cuGraphConditionalHandleCreate(graph, context.handle, 0, 0), doing)
        setter = _Setter(device, module, int(handle), flag, limit)
        CudaRecorder(device).record(lambda: setter.launch(True), graph)
        body = _conditional(device, graph, handle)
        recorder = CudaRecorder(device, loops=True)

        def turn() -> Any:
            value = function(*arguments)
            recorder.require_work()
            setter.launch(False)
            return value

        _, value = recorder.record(turn, body)
    except BaseException:
        cuda.cuGraphDestroy(graph)
        raise
    recorder.buffers += [("flag", flag)]
    recorder.kept += [setter, setter.left, module]
    replay = Replay(device, graph, recorder, True)
    device.telemetry.graphs_captured += 1
    return CudaLoop(device, value, node_count(cuda, body) - 1, replay, setter)
