"""The stand-in for the CUDA driver, with stream capture, graphs, conditional nodes and priorities.

A node is a function that does its work when its graph is launched. What the real driver does not allow while a stream is captured breaks the capture here too.
"""

from __future__ import annotations

import copy
import ctypes
import struct
import threading
from types import SimpleNamespace

from fake_cuda import GIVES, NATIVE, OK, CUresult, FakeDriver, Names

NATIVE.update(
    cuStreamWaitEvent=3, cuGraphExecKernelNodeSetParams=3, cuGraphKernelNodeSetParams=2, cuGraphLaunch=2, cuLaunchKernel=11, cuMemcpyDtoDAsync=4,
    cuMemsetD16Async=4, cuMemsetD32Async=4, cuMemsetD8Async=4,
)  # fmt: skip
GIVES.update({
    "cuCtxGetStreamPriorityRange", "cuDeviceGetGraphMemAttribute", "cuGraphAddChildGraphNode",
    "cuGraphAddNode", "cuGraphConditionalHandleCreate", "cuGraphCreate", "cuGraphGetNodes", "cuGraphInstantiate",
    "cuStreamCreateWithPriority", "cuStreamEndCapture", "cuStreamGetCaptureInfo", "cuStreamIsCapturing",
})  # fmt: skip

# What the driver refuses in a thread that captures: each could wait for the device, or is no part of the work that is captured.
UNSAFE = {
    "cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost", "cuMemPoolCreate", "cuMemPoolDestroy",
    "cuMemPoolTrimTo", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleUnload", "cuGraphInstantiate", "cuGraphUpload", "cuGraphExecDestroy",
    "cuCtxSynchronize", "cuCtxEnablePeerAccess", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuEventQuery", "cuEventSynchronize", "cuStreamQuery",
}  # fmt: skip


class Node:
    """A piece of a graph; `run(driver)` does it."""

    def __init__(self, handle, kind, run, **details):
        self.handle, self.kind, self.run = handle, kind, run
        self.__dict__.update(details)


class Graph:
    """`memory` is what its nodes allocate, by address, `freed` what they free of that, `peak` the most bytes that are there at once; `origin` is the graph that
    an executable one was made from."""

    def __init__(self, is_body=False):
        self.nodes = []
        self.memory, self.freed, self.peak = {}, set(), 0
        self.is_body, self.frees_first, self.origin = is_body, False, None


class FakeGraphDriver(FakeDriver):
    """`graphs` and `executables` by handle; `kernels[name]` is what a kernel of that name means, else `kernel`; `misuse` lists calls that break captures."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.CUgraphNodeType = SimpleNamespace(CU_GRAPH_NODE_TYPE_CONDITIONAL=13)
        self.CUgraphConditionalNodeType = SimpleNamespace(CU_GRAPH_COND_TYPE_WHILE=1)
        self.CUgraph = int
        self.CUgraphInstantiate_flags = SimpleNamespace(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH=1)
        self.CUgraphMem_attribute = Names()
        self.graphs, self.executables, self.functions, self.kernels = {}, {}, {}, {}
        self.capturing, self.broken, self.misuse = {}, False, []
        self.conditions = {}
        self.declared = {}  # entry -> (offset, size) of each parameter
        self.argument_bytes = {}  # entry -> bytes of its arguments: those of entries that were launched with a block, and others that a test names
        self.version = 13000
        self.graph_streams, self.own_graphs = [], set()
        self.ends, self.broken_end = 0, 0  # captures that ended, and which of them is to end as a broken one
        self.handles = 100  # modules have fixed ones below
        self.unordered = 0
        self.addresses, self.graph_memory = {}, {}  # of graphs' own memory: the host's for each, and the bytes of what a replay has allocated
        self.reserved = 0  # bytes that the driver has for such memory
        self.limbo = {}  # what replays that found no memory have freed, and somebody has to free: the executable graph by address

    def cuDriverGetVersion(self):
        return *OK, self.version

    # ---- captures

    def refusal(self, name):
        """What the driver refuses in a thread that captures, unless that thread said that it knows what it does."""
        if name not in UNSAFE or getattr(self.modes, "mode", 1) == 2:
            return super().refusal(name)
        if threading.get_ident() not in [thread for _, thread in list(self.capturing.values())]:
            return super().refusal(name)
        self.broken = True
        self.misuse.append(name)
        return CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED

    def _add(self, stream, kind, run, **details):
        """Makes a call on a stream that is captured a node; false for other streams."""
        if int(stream) not in self.capturing:
            return False
        graph, _ = self.capturing[int(stream)]
        self.handles += 1
        self.graphs[graph].nodes.append(Node(self.handles, kind, run, **details))
        return True

    def cuStreamBeginCapture(self, stream, mode):
        _, handle = self.made("graph")
        self.graphs[handle] = Graph()
        self.own_graphs.add(handle)
        return self.__class__.cuStreamBeginCaptureToGraph(self, stream, handle, None, None, 0, mode)

    def cuStreamBeginCaptureToGraph(self, stream, graph, dependencies, data, count, mode):
        assert dependencies is None and data is None and count == 0 and mode == 1
        assert stream not in self.capturing
        self.capturing[stream] = (graph, threading.get_ident())
        self.broken = False
        return OK

    def cuStreamEndCapture(self, stream):
        graph, thread = self.capturing.pop(stream)
        assert not self.unordered, "a child graph that the stream's later work does not wait for"
        assert thread == threading.get_ident()
        self.ends += 1
        if self.broken or self.ends == self.broken_end:
            if graph in self.own_graphs:  # made by the capture; others stay with who made them
                del self.alive_handles[graph], self.graphs[graph]
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 0
        return *OK, graph

    def cuStreamGetCaptureInfo(self, stream):
        graph, _ = self.capturing[stream]
        nodes = [node.handle for node in self.graphs[graph].nodes[-1:]]
        return *OK, 1, 7, graph, nodes, None, len(nodes)

    def cuStreamIsCapturing(self, stream):
        return *OK, int(stream in self.capturing or stream in self.captured)

    # ---- what is refused, or becomes a node, within one

    def cuStreamSynchronize(self, stream):
        if int(stream) in self.capturing:
            self.broken = True
            self.misuse.append("cuStreamSynchronize")
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        return super().cuStreamSynchronize(stream)

    # ---- memory, of graphs as well

    def cuMemAlloc(self, size):
        if self.used + self.reserved + size > self.total:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        return super().cuMemAlloc(size)

    def cuMemAllocFromPoolAsync(self, size, pool, stream):
        """A node of a graph, at an address that only replays back by memory; in a thread that captures no other stream may be asked."""
        if int(stream) not in self.capturing:
            if status := self.refusal("cuMemAlloc"):
                return status, None
            return self.__class__.cuMemAlloc(self, size)
        graph = self.graphs[self.capturing[int(stream)][0]]
        if graph.is_body:
            self.broken = True
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, None
        block = ctypes.create_string_buffer(b"\xaa" * size, size)
        address = ctypes.addressof(block)
        self.addresses[address] = block
        graph.memory[address] = size
        graph.peak = max(graph.peak, sum(bytes_ for at, bytes_ in graph.memory.items() if at not in graph.freed))

        def allocate(driver):
            assert address not in driver.graph_memory, "it is there already"
            driver.graph_memory[address] = size
            ctypes.memset(address, 0xAA, size)

        self._add(stream, "allocate", allocate)
        return *OK, address

    def cuMemFreeAsync(self, address, stream):
        """Frees what a pool gave, and what a replay left; in a capture a node frees what the same graph allocates before, and nothing else."""
        if int(stream) not in self.capturing:
            if status := self.refusal("cuMemFree"):
                return (status,)
            if address not in self.addresses:
                return super().cuMemFreeAsync(address, stream)
            if self._leaves_limbo(address) or self._free_of_graph(address):
                return OK
            self.misuse.append("memory of a graph freed again, for which the real driver ends the process")
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        graph = self.graphs[self.capturing[int(stream)][0]]
        if address not in graph.memory or address in graph.freed:
            self.broken = True
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        graph.freed.add(address)
        self._add(stream, "free", lambda driver: driver._free_of_graph(address))
        return OK

    def _leaves_limbo(self, address):
        """Whether it was there, which it is no longer."""
        graph = self.limbo.pop(address, None)
        if graph is not None:
            ctypes.memset(address, 0xDD, len(self.addresses[address]))
            if graph in self.executables.values():
                self.misuse.append("what a failed replay had left is freed before its executable graph goes, for which the real driver may end the process")
            self._forget()
        return graph is not None

    def _free_of_graph(self, address):
        """Whether it was there, which it is no longer."""
        size = self.graph_memory.pop(address, None)
        if size is not None:
            ctypes.memset(address, 0xDD, size)
            self._forget()
        return size is not None

    def _forget(self):
        """Addresses go with their graph, or with what its replays left."""
        known = {address for graph in self.graphs.values() for address in graph.memory}
        for address in set(self.addresses) - known - set(self.graph_memory) - set(self.limbo):
            del self.addresses[address]

    def touch(self, name, *ranges):
        """Notes what uses memory of a graph that is not there."""
        for begin, size in ranges:
            for address, block in self.addresses.items():
                if begin < address + len(block) and address < begin + size and address not in self.graph_memory:
                    self.misuse.append(f"{name} of memory that no replay has allocated")

    def cuDeviceGraphMemTrim(self, device):
        self.reserved = sum(self.graph_memory.values())
        return OK

    def cuDeviceGetGraphMemAttribute(self, device, attribute):
        values = {"CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT": sum(self.graph_memory.values()), "CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT": self.reserved}
        return *OK, values[attribute]

    def cuMemGetInfo(self):
        return *OK, self.total - self.used - self.reserved, self.total

    def _move(self, target, source, size):
        self.touch("a copy", (target, size), (source, size))
        ctypes.memmove(target, source, size)

    def cuMemcpyHtoDAsync(self, target, source, size, stream):
        self._move(target, source, size)
        return OK

    def cuMemcpyDtoDAsync(self, target, source, size, stream):
        if not self._add(stream, "copy", lambda driver: driver._move(target, source, size)):
            self._move(target, source, size)
        return OK

    def _fill(self, width, address, value, count, stream):
        data = value.to_bytes(width, "little") * count

        def fill(driver):
            driver.touch("a fill", (address, len(data)))
            ctypes.memmove(address, data, len(data))

        if not self._add(stream, "fill", fill):
            fill(self)
        return OK

    def cuMemsetD8Async(self, address, value, count, stream):
        return self._fill(1, address, value, count, stream)

    def cuMemsetD16Async(self, address, value, count, stream):
        return self._fill(2, address, value, count, stream)

    def cuMemsetD32Async(self, address, value, count, stream):
        return self._fill(4, address, value, count, stream)

    # ---- kernels

    def cuModuleGetFunction(self, module, name):
        self.handles += 1
        self.functions[self.handles] = name.decode()
        return *OK, self.handles

    def cuFuncGetParamInfo(self, function, index):
        known = self.declared.get(self.functions[function])
        if known is None:
            raise RuntimeError('Function "cuFuncGetParamInfo" not found')
        return (*OK, *known[index]) if index < len(known) else (CUresult.CUDA_ERROR_INVALID_VALUE, None, None)

    def run_kernel(self, function, block):
        name = self.functions[function]
        if name == "vyre_while":
            handle, flag, left, limit, first = struct.unpack("<QQQII", block)
            flag, left = ctypes.c_uint32.from_address(flag), ctypes.c_uint32.from_address(left)
            turns = limit if first else left.value
            self.conditions[handle] = bool(flag.value and turns)
            left.value = turns - self.conditions[handle]
        elif (kernel := self.kernels.get(name) or self.kernels.get(name.rpartition("_x")[0], self.kernel)) is not None:
            kernel(block)  # an entry with several elements an invocation means what the kernel does

    def cuLaunchKernelEx(self, config, function, pointers, extra):
        # Seen on a GPU: a cooperative launch whose arguments come as a block is not captured, and ends the capture.
        *_, stream, attributes, count = struct.unpack("<7I4xQQI4x", ctypes.string_at(config, 56))
        asked = [struct.unpack("<I4xI", ctypes.string_at(attributes + 72 * k, 12)) for k in range(count)]
        if (2, 1) in asked and extra and stream in self.capturing:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        return super().cuLaunchKernelEx(config, function, pointers, extra)

    def block_of(self, function, pointers, extra):
        """The argument block of a launch, whichever way it is given."""
        if not extra:
            found, base = self.argument_bytes[self.functions[function]], ctypes.c_uint64.from_address(pointers).value
            return ctypes.string_at(base, found)
        words = ctypes.cast(extra, ctypes.POINTER(ctypes.c_uint64))
        assert (words[0], words[2], words[4]) == (1, 2, 0)
        self.argument_bytes[self.functions[function]] = size = ctypes.c_uint64.from_address(words[3]).value
        return ctypes.string_at(words[1], size)

    def cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, pointers, extra):
        block = self.block_of(function, pointers, extra)
        shape = ((gx, gy, gz), (bx, by, bz), shared, stream)
        if not self._add(stream, "kernel", None, function=function, block=block, shape=shape):
            self.launches.append(shape)
            self.run_kernel(function, block)
        return OK

    # ---- graphs

    def cuGraphCreate(self, flags):
        _, handle = self.made("graph")
        self.graphs[handle] = Graph()
        return *OK, handle

    def cuGraphDestroy(self, graph):
        del self.graphs[int(graph)]
        self._forget()
        return self.destroyed(graph)

    def cuGraphGetNodes(self, graph, count):
        nodes = [node.handle for node in self.graphs[graph].nodes]
        return *OK, nodes[:count], len(nodes)

    def cuGraphConditionalHandleCreate(self, graph, context, value, flags):
        assert context == 77 and (value, flags) == (0, 0)
        self.handles += 1
        return *OK, self.handles

    def CUgraphNodeParams(self):
        return SimpleNamespace(type=None, conditional=SimpleNamespace(phGraph_out=[]))

    def cuGraphAddNode(self, graph, dependencies, data, count, parameters):
        wanted = parameters.conditional
        assert parameters.type == 13 and wanted.type == 1 and wanted.size == 1 and wanted.ctx == 77
        assert dependencies == [self.graphs[graph].nodes[-1].handle] and count == 1
        self.handles += 1
        body = self.handles  # belongs to the graph around it
        self.graphs[body] = Graph(is_body=True)
        wanted.phGraph_out = [body]
        self.handles += 1
        self.graphs[graph].nodes.append(Node(self.handles, "loop", None, condition=wanted.handle, body=self.graphs[body]))
        return *OK, self.handles

    def cuGraphInstantiate(self, graph, flags):
        """Of a graph that allocates memory there is one executable form at a time."""
        assert flags in (0, 1)
        origin = self.graphs[graph]
        if origin.memory and any(one.origin is origin for one in self.executables.values()):
            return CUresult.CUDA_ERROR_INVALID_VALUE, None
        if not self.limbo.keys().isdisjoint(origin.memory):
            self.misuse.append("a graph is instantiated before what a failed replay had left is freed, for which the real driver ends the process")
        _, handle = self.made("executable")
        self.executables[handle] = made = copied(origin)
        made.frees_first, made.origin = bool(flags), origin
        return *OK, handle

    def cuGraphUpload(self, executable, stream):
        return OK

    def cuGraphExecDestroy(self, executable):
        del self.executables[int(executable)]
        return self.destroyed(executable)

    def run_graph(self, graph):
        for node in graph.nodes:
            if node.kind == "kernel":
                self.run_kernel(node.function, node.block)
            elif node.kind == "loop":
                while self.conditions[node.condition]:
                    self.run_graph(node.body)
            else:
                node.run(self)

    def cuGraphLaunch(self, executable, stream):
        if int(stream) in self.capturing:  # the real driver takes graphs into a capture as child nodes only
            self.broken = True
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        graph = self.executables[executable]
        left = [address for address in graph.memory if address in self.graph_memory]
        if left and not graph.frees_first:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        if graph in self.limbo.values():
            self.misuse.append("an executable graph that found no memory is replayed again, for which the real driver may end the process or the context")
        needed = sum(self.graph_memory.values()) - sum(self.graph_memory[address] for address in left) + graph.peak
        if self.used + needed > self.total:
            for address in left:
                del self.graph_memory[address]
                self.limbo[address] = graph
            return (CUresult.CUDA_ERROR_OUT_OF_MEMORY,)
        for address in left:
            self._free_of_graph(address)
        self.reserved = max(self.reserved, needed)
        self.graph_streams.append(stream)
        self.run_graph(copied(graph))
        return OK

    def cuGraphAddChildGraphNode(self, graph, dependencies, count, child):
        assert dependencies == [node.handle for node in self.graphs[graph].nodes[-1:]] and count == len(dependencies)
        if self.graphs[int(child)].memory:
            return CUresult.CUDA_ERROR_NOT_SUPPORTED, None
        inner = copied(self.graphs[int(child)])
        self.handles += 1
        self.unordered = self.handles
        self.graphs[graph].nodes.append(Node(self.handles, "graph", lambda driver: driver.run_graph(inner)))
        return *OK, self.handles

    def cuStreamUpdateCaptureDependencies(self, stream, nodes, data, count, flags):
        assert nodes == [self.unordered] and data is None and (count, flags) == (1, 1) and int(stream) in self.capturing
        self.unordered = 0
        return OK

    def _set(self, node, address):
        function, *shape = struct.unpack_from("<Q7I", ctypes.string_at(address, 36))
        pointers = ctypes.c_uint64.from_address(address + 40).value
        assert node.kind == "kernel" and function in self.functions and tuple(shape[3:]) == (*node.shape[1], node.shape[2])
        node.function, node.shape = function, (tuple(shape[:3]), *node.shape[1:])
        node.block = ctypes.string_at(ctypes.c_uint64.from_address(pointers).value, len(node.block))
        return OK

    def cuGraphExecKernelNodeSetParams(self, executable, node, address):
        (found,) = [one for one in self.executables[executable].nodes if one.handle == node]
        return self._set(found, address)

    def cuGraphKernelNodeSetParams(self, node, address):
        (found,) = [one for graph in self.graphs.values() for one in graph.nodes if one.handle == node]
        return self._set(found, address)

    # ---- streams

    def cuCtxGetStreamPriorityRange(self):
        return *OK, 0, -5

    def cuStreamCreateWithPriority(self, flags, priority):
        assert -5 <= priority <= 0
        return self.made("stream")


def copied(graph):
    """A graph whose nodes may change apart from the first's."""
    made = Graph()
    made.memory, made.freed, made.peak = graph.memory, graph.freed, graph.peak
    for node in graph.nodes:
        made.nodes.append(copy.copy(node))
        if node.kind == "loop":
            made.nodes[-1].body = copied(node.body)
    return made
