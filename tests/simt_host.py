"""Runs the kernels of the GPU walk on the host: the same LLVM IR with registers, barriers and address spaces put in host terms.

Each invocation of a workgroup is a thread, so barriers are real; workgroups run one after another. For small workgroups only.
"""

from __future__ import annotations

import ctypes
import re
import struct
import threading

import llvmlite.binding as llvm
import numpy as np

from vyre_py.drivers.binding import encode_param
from vyre_py.ir.dims import evaluate_dim
from vyre_py.ir.nodes import Param
from vyre_py.lowering.layout import SlotKind, lay_out
from vyre_py.lowering.llvm.simt import write_kernel
from vyre_py.lowering.llvm.text import ModuleText

_REGISTERS = ["tid.x", "tid.y", "tid.z", "ctaid.x", "ctaid.y", "ctaid.z", "nctaid.x", "nctaid.y", "nctaid.z"]
_SIZES = {"ptr": 8, "i64": 8, "i32": 4}
_WAIT = ctypes.CFUNCTYPE(None)


def host_text(optimised) -> str:
    """The kernel with one parameter, a pointer to [9 registers, address of the waiting function, argument block]."""
    module = ModuleText()
    size = write_kernel(optimised, module, "kernel")
    text = re.sub(r" addrspace\(\d\)", "", str(module))
    text = re.sub(r' syncscope\("\w+"\)', "", text)
    text = text.replace("@shared = external global [0 x i8]", f"@shared = global [{size} x i8] zeroinitializer")
    text = re.sub(r"declare \S+ @llvm\.nvvm\.\S+\(\)\n", "", text)
    for k, name in enumerate(_REGISTERS):
        call = rf"(%v\d+) = call i32 @llvm\.nvvm\.read\.ptx\.sreg\.{re.escape(name)}\(\)"
        text = re.sub(call, rf"\1.p = getelementptr i32, ptr %ctx, i64 {k}\n  \1 = load i32, ptr \1.p", text)
    text = text.replace("call void @llvm.nvvm.barrier0()", "call void %wait()")
    parameters = re.search(r"define ptx_kernel void @kernel\((.*)\) \"", text)[1]
    loads = ["  %wait.p = getelementptr i8, ptr %ctx, i64 40", "  %wait = load ptr, ptr %wait.p"]
    offset = 48
    for parameter in filter(None, parameters.split(", ")):
        type_, name = parameter.split()[0], parameter.split()[-1]
        offset += -offset % _SIZES[type_]
        loads += [f"  {name}.p = getelementptr i8, ptr %ctx, i64 {offset}", f"  {name} = load {type_}, ptr {name}.p, align 1"]
        offset += _SIZES[type_]
    text = re.sub(r"define ptx_kernel void @kernel\(.*\) \".*\" \{\nentry:", "define void @kernel(ptr %ctx) {\nentry:\n" + "\n".join(loads), text)
    return re.sub(r'define ptx_kernel .*\{', "define void @kernel(ptr %ctx) {", text)


def run(optimised, arguments, sizes, opt=2):
    """Runs a Program made for PTX, writing arrays in place: `arguments` by name, as the interpreter takes them."""
    program = optimised.program
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    text = host_text(optimised)
    waits = "call void %wait()" in text
    module = llvm.parse_assembly(text)
    module.verify()
    # Without that feature f16 would be converted by functions that the process lacks; with all features LLVM's x86 back end loses numbers to
    # NaN in chains of min and max, which is why host code has rows of its own for them.
    features = "+f16c" if "f16c" in llvm.get_host_cpu_features() else ""
    machine = llvm.Target.from_default_triple().create_target_machine(features=features, opt=opt)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=opt))
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address("kernel"))
    layout = lay_out(program)
    block = bytearray(layout.size_bytes)
    for slot in layout.slots:
        if slot.kind is SlotKind.BUFFER:
            struct.pack_into("<Q", block, slot.offset_bytes, arguments[slot.name].ctypes.data)
        elif slot.kind is SlotKind.PARAM:
            # The reference device has split its arguments already, and gives the parts by their own names.
            name, begin = (slot.name, 0) if slot.name in arguments else slot.source
            value = arguments[name]
            whole = isinstance(value, (np.generic, np.ndarray))
            encoded = np.asarray(value).tobytes() if whole else encode_param(Param(name, slot.type), value)
            data = encoded[begin : begin + slot.type.size_bytes].ljust(slot.size_bytes, b"\0")
            block[slot.offset_bytes : slot.offset_bytes + slot.size_bytes] = data
        else:
            struct.pack_into("<I", block, slot.offset_bytes, evaluate_dim(slot.expr, sizes))
    extents = [evaluate_dim(e, sizes) for e in program.grid.extents]
    grid = [-(-e // w) if program.grid.over else e for e, w in zip(extents, program.workgroup, strict=True)]
    for index in np.ndindex(*reversed(grid)):
        _workgroup(kernel, program.workgroup, grid, tuple(reversed(index)), bytes(block), waits)


def _workgroup(kernel, workgroup, grid, place, block, waits):
    count = int(np.prod(workgroup))
    meeting = threading.Barrier(count)

    @_WAIT
    def wait():
        meeting.wait(20)

    address = ctypes.cast(wait, ctypes.c_void_p).value

    def invocation(x, y, z):
        context = ctypes.create_string_buffer(struct.pack("<9I4xQ", x, y, z, *place, *grid, address) + block)
        kernel(ctypes.addressof(context))

    places = [(x, y, z) for z in range(workgroup[2]) for y in range(workgroup[1]) for x in range(workgroup[0])]
    if not waits:
        for at in places:
            invocation(*at)
        return
    threads = [threading.Thread(target=invocation, args=at) for at in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
