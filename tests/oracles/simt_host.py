"""Runs the kernels of the GPU walk on the host: the same LLVM IR with registers, barriers and address spaces put in host terms.

Each invocation of a workgroup is a thread, so barriers are real, and so is what a warp does together; workgroups run one after another, or all at once
where the grid has a barrier. For small workgroups and grids only.
"""

from __future__ import annotations

import ctypes
import re
import struct
import threading
from collections.abc import Callable
from functools import lru_cache

import llvmlite.binding as llvm
import numpy as np
from warp import WARP, exchanged

from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.ir.language.nodes import Param
from vyre_py.lowering.layout import SlotKind
from vyre_py.lowering.llvm.gpu.grid_scan import columns_of
from vyre_py.lowering.llvm.gpu.simt.kernel import write_kernel
from vyre_py.lowering.llvm.text import ModuleText
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.views import layout_of

_REGISTERS = ["tid.x", "tid.y", "tid.z", "ctaid.x", "ctaid.y", "ctaid.z", "nctaid.x", "nctaid.y", "nctaid.z"]
_SIZES = {"ptr": 8, "i64": 8, "i32": 4}
_WAIT = ctypes.CFUNCTYPE(None)
_EXCHANGE = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
_INTRINSIC = re.compile(r"(%v\d+) = call (i32|i1) @llvm\.nvvm\.((?:shfl|vote|match|redux)[\w.]*)\((.*)\)")
_COPY = re.compile(r'call void asm sideeffect "cp\.async\.c[ag]\.shared\.global [^"]*, (\d+)(?:, \$2)?;", "[^"]*"\(i32 (\S+), (i64 [^,)]+)(?:, (i32 [^)]+))?\)')
# Some bytes, and zeros up to the whole: at once, since what a thread has begun may be there at any time.
_COPIED = """
define internal void @copied(i64 %target, i64 %source, i32 %given, i32 %size) {
  %t = inttoptr i64 %target to ptr
  %s = inttoptr i64 %source to ptr
  call void @llvm.memset.p0.i32(ptr %t, i8 0, i32 %size, i1 false)
  call void @llvm.memcpy.p0.p0.i32(ptr %t, ptr %s, i32 %given, i1 false)
  ret void
}
declare void @llvm.memset.p0.i32(ptr, i8, i32, i1)
declare void @llvm.memcpy.p0.p0.i32(ptr, ptr, i32, i1)
"""
_TYPED = re.compile(r"\.i(?:32|64)$")
PLAIN = CompileOptions()


def host_text(optimised, options=PLAIN, coarsened=None) -> tuple[str, int]:
    """The kernel with one parameter, a pointer to [9 registers, addresses of the waiting function, of workgroup memory and of the warp's, argument block];
    and its bytes of workgroup memory."""
    module = ModuleText()
    size = write_kernel(optimised, module, "kernel", options, coarsened=coarsened)
    text = re.sub(r" addrspace\(\d\)", "", str(module))
    text = re.sub(r' syncscope\("\w+"\)', "", text)
    text = re.sub(r"@shared = external global .*\n", "", text)
    places = sorted(set(re.findall(r"getelementptr \(i8, ptr @shared, i64 (\d+)\)", text)))
    text = re.sub(r"getelementptr \(i8, ptr @shared, i64 (\d+)\)", r"%shared.\1", text).replace("@shared", "%shared")
    text = re.sub(r"declare \S+ @llvm\.nvvm\.\S+\(\)\n", "", text)
    text = re.sub(r"declare \S+ @llvm\.nvvm\.(?:shfl|vote|match|redux)[^\n]*\n", "", text)
    text = _INTRINSIC.sub(_exchange_call, text)
    text = re.sub(r"@llvm\.nvvm\.([fd])2(u?)(i|ll)\.rz\(", _whole_number, text)
    # To exit is to return here.
    text = text.replace("  call void @llvm.nvvm.exit()\n  unreachable", "  ret void").replace("declare void @llvm.nvvm.exit()\n", "")
    # The approximation may be the correct result.
    text = re.sub(r"declare float @llvm\.nvvm\.rcp\.approx\.ftz\.f\(float\)\n", "", text)
    text = re.sub(r"(%v\d+) = call float @llvm\.nvvm\.rcp\.approx\.ftz\.f\(float (\S+)\)", r"\1 = fdiv float 1.0, \2", text)
    text = re.sub(r"declare i32 @llvm\.nvvm\.idp4a\.(s|u)\.\1\(i32, i32, i32\)", _products_of_bytes, text)
    text = re.sub(r"@llvm\.nvvm\.idp4a\.(s|u)\.\1\(", r"@bytes.\1(", text)
    if _COPY.search(text):
        # The device's addresses of workgroup memory have 32 bits, the host's 64.
        whole = dict(re.findall(r"(%v\d+) = trunc i64 (%v\d+) to i32", text))
        text = _COPY.sub(lambda found: _copy_call(found, whole), text) + _COPIED
    text = re.sub(r"  call void asm .*\n", "", text)  # the names of registers are those of PTX
    clock = r"(%v\d+) = call i32 @llvm\.nvvm\.read\.ptx\.sreg\.clock\(\)"
    text = re.sub(clock, r"\1.w = call i64 @llvm.readcyclecounter()\n  \1 = trunc i64 \1.w to i32", text)
    for k, name in enumerate(_REGISTERS):
        call = rf"(%v\d+) = call i32 @llvm\.nvvm\.read\.ptx\.sreg\.{re.escape(name)}\(\)"
        text = re.sub(call, rf"\1.p = getelementptr i32, ptr %ctx, i64 {k}\n  \1 = load i32, ptr \1.p", text)
    text = text.replace("call void @llvm.nvvm.barrier0()", "call void %wait()")
    text = re.sub(r"  call void @llvm\.nvvm\.bar\.warp\.sync\(.*\n", "", text)  # before a barrier, where all wait
    parameters = re.search(r"define ptx_kernel void @kernel\((.*)\) \"", text)[1]
    loads = ["  %wait.p = getelementptr i8, ptr %ctx, i64 40", "  %wait = load ptr, ptr %wait.p"]
    loads += ["  %shared.p = getelementptr i8, ptr %ctx, i64 48", "  %shared = load ptr, ptr %shared.p"]
    loads += ["  %exchange.p = getelementptr i8, ptr %ctx, i64 56", "  %exchange = load ptr, ptr %exchange.p"]
    loads += [f"  %shared.{place} = getelementptr i8, ptr %shared, i64 {place}" for place in places]
    # The workgroup of a kernel that walks is a function of its own.
    text = text.replace("call void @kernel_workgroup(", "call void @kernel_workgroup(ptr %ctx, ")
    text = re.sub(r"(define internal void @kernel_workgroup\()(.*\{\nentry:)", r"\1ptr %ctx, \2\n" + "\n".join(loads), text)
    offset = 64
    for parameter in filter(None, parameters.split(", ")):
        type_, name = parameter.split()[0], parameter.split()[-1]
        offset += -offset % _SIZES[type_]
        loads += [f"  {name}.p = getelementptr i8, ptr %ctx, i64 {offset}", f"  {name} = load {type_}, ptr {name}.p, align 1"]
        offset += _SIZES[type_]
    text = re.sub(r"define ptx_kernel void @kernel\(.*\) \".*\" \{\nentry:", "define void @kernel(ptr %ctx) {\nentry:\n" + "\n".join(loads), text)
    return re.sub(r'define ptx_kernel .*\{', "define void @kernel(ptr %ctx) {", text), size


def _exchange_call(found: re.Match[str]) -> str:
    """An instruction of a warp as a call of the host: which one, the mask, the value in 64 bits, and two operands more."""
    result, type_, name, given = found.groups()
    operands = [operand.split(" ", 1) for operand in given.split(", ")]
    if name.startswith("redux"):
        operands.reverse()
    (_, mask), (held, value), *rest = operands
    (_, b), (_, c) = rest or [("i32", "0")] * 2
    lines = [] if held == "i64" else [f"{result}.x = zext {held} {value} to i64"]
    wide = value if held == "i64" else f"{result}.x"
    call = f"call i32 %exchange(i32 {_NAMES.index(_TYPED.sub('', name))}, i32 {mask}, i64 {wide}, i32 {b}, i32 {c})"
    lines += [f"{result} = {call}"] if type_ == "i32" else [f"{result}.w = {call}", f"{result} = trunc i32 {result}.w to i1"]
    return "\n  ".join(lines)


def _copy_call(found: re.Match[str], whole: dict[str, str]) -> str:
    """A copy as a call of the function that does it."""
    size, target, source, given = found.groups()
    return f"call void @copied(i64 {whole[target]}, {source}, {given or f'i32 {size}'}, i32 {size})"


# LLVM has the vote's word before `sync`.
_NAMES = [
    *[f"shfl.sync.{name}" for name in ("idx", "bfly", "up", "down")], *[f"vote.{name}.sync" for name in ("ballot", "all", "any")], "match.any.sync",
    *[f"redux.sync.{name}" for name in ("add", "and", "or", "xor", "min", "max", "umin", "umax")],
]  # fmt: skip


def _products_of_bytes(found: re.Match[str]) -> str:
    """The instruction as a function of its name, byte by byte."""
    lines, total = [f"define internal i32 @bytes.{found[1]}(i32 %a, i32 %b, i32 %c) {{"], "%c"
    for k in range(4):
        for x in "ab":
            lines += [f"%{x}{k}.p = lshr i32 %{x}, {8 * k}", f"%{x}{k}.b = trunc i32 %{x}{k}.p to i8", f"%{x}{k} = {found[1]}ext i8 %{x}{k}.b to i32"]
        lines += [f"%p{k} = mul i32 %a{k}, %b{k}", f"%t{k} = add i32 {total}, %p{k}"]
        total = f"%t{k}"
    return "\n".join([*lines, f"ret i32 {total}", "}"]).replace(" uext ", " zext ")


class _Exchange:
    """One instruction of a warp that some of its threads have come to: their operands by lane, then all results."""

    def __init__(self) -> None:
        self.operands: dict[int, list[int]] = {}
        self.results: dict[int, int] = {}
        self.done = threading.Event()  # of its own, so that the last one wakes none but those that wait for it


class _Warps:
    """Where the threads of a workgroup meet that an instruction names."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.here: dict[tuple[int, int, int], _Exchange] = {}  # by warp, instruction and mask

    def exchange(self, thread: int, kind: int, mask: int, value: int, b: int, c: int) -> int:
        warp, lane = divmod(thread, WARP)
        key, name = (warp, kind, mask), re.sub(r"vote\.(\w+)\.sync", r"vote.sync.\1", _NAMES[kind])
        assert mask >> lane & 1
        with self.lock:
            exchange = self.here.setdefault(key, _Exchange())
            exchange.operands[lane] = [value, b, c] if name.startswith("shfl") else [value]
            if is_last := len(exchange.operands) == mask.bit_count():
                del self.here[key]
        if is_last:
            compute = exchanged(name)
            exchange.results = {k: compute(k, exchange.operands) & 0xFFFFFFFF for k in exchange.operands}
            exchange.done.set()
        assert exchange.done.wait(20), f"{name} waits for ever"
        return exchange.results[lane]


def _whole_number(found: re.Match[str]) -> str:
    """LLVM's own saturating conversion, in the place of PTX's."""
    return f"@llvm.fpto{found[2] or 's'}i.sat.i{32 if found[3] == 'i' else 64}.f{32 if found[1] == 'f' else 64}("


@lru_cache(maxsize=32)
def _compiled(text: str, opt: int) -> tuple[object, Callable[[int], None]]:
    """The engine that holds a module's code, and its kernel: one text is compiled once, whatever it is run on."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
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
    return engine, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address("kernel"))


def run(
    optimised, arguments, sizes, opt=2, arrivals=None, options=PLAIN, cancel=None, launched=2, grid=None, only=None, coarsened=None, heard=None, scans=None
):  # fmt: skip
    """Runs a Program made for PTX, writing arrays in place: `arguments` by name, as the interpreter takes them. `arrivals` are the words that a
    grid barrier counts in, `cancel` the one that an interruptible kernel looks at, zeros if none are given; `launched` is how many workgroups
    a persistent one has, `scans` the words of scans over the grid. `grid` replaces the Program's, in workgroups; `only` is the one workgroup of those launched
    that is run. `coarsened` is the form to run in the Program's place. `heard` takes up what it tells."""
    program = optimised.program
    text, shared_bytes = host_text(optimised, options, coarsened)
    waits = "call void %wait()" in text or "call i32 %exchange(" in text
    _, kernel = _compiled(text, opt)
    layout = layout_of(optimised, options)
    shape = program.grid if coarsened is None else coarsened.optimised.program.grid
    extents = [evaluate_dim(e, sizes) for e in shape.extents]
    grid = grid or [-(-e // w) if shape.over else e for e, w in zip(extents, program.workgroup, strict=True)]
    cancel = np.zeros(1, np.uint32) if cancel is None else cancel
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
        elif slot.kind is SlotKind.ARRIVALS:
            arrivals = np.zeros(2, np.uint32) if arrivals is None else arrivals
            struct.pack_into("<Q", block, slot.offset_bytes, arrivals.ctypes.data)
        elif slot.kind is SlotKind.SCANS:
            scans = np.zeros(1 + columns_of(program) * int(np.prod(grid)), np.uint64) if scans is None else scans
            struct.pack_into("<Q", block, slot.offset_bytes, scans.ctypes.data)
        elif slot.kind is SlotKind.REPORT:
            struct.pack_into("<Q", block, slot.offset_bytes, heard.memory(slot).ctypes.data)
        elif slot.kind is SlotKind.CANCEL:
            struct.pack_into("<Q", block, slot.offset_bytes, cancel.ctypes.data)
        elif slot.kind is SlotKind.GROUPS:
            struct.pack_into("<I", block, slot.offset_bytes, grid[slot.axis])
        elif slot.kind is SlotKind.GRID:
            read = np.array(grid, np.uint32)
            struct.pack_into("<Q", block, slot.offset_bytes, read.ctypes.data)
        else:
            block[slot.offset_bytes : slot.offset_bytes + slot.size_bytes] = evaluate_dim(slot.expr, sizes).to_bytes(slot.size_bytes, "little")
    if options.indirect or (options.persistent and 0 not in grid):
        grid = [launched, 1, 1]
    running = []
    for index in np.ndindex(*reversed(grid)) if only is None else [only]:
        threads = _workgroup(kernel, program.workgroup, grid, tuple(reversed(index)), bytes(block), waits, shared_bytes)
        if layout.find(SlotKind.ARRIVALS) or layout.find(SlotKind.SCANS):
            running += threads
        else:
            _run_all(threads)
    _run_all(running)
    if heard is not None:
        heard.finish(grid)


class Walk:
    """Runs Programs one after another as `run` does, but none twice: what the passes make of a Program that they have been over is mostly what they make of
    it as it was written, and then the second has the first one's results over equal arguments."""

    def __init__(self):
        self._made, self._given, self._written = None, {}, {}

    def run(self, optimised, arguments, sizes, options=PLAIN, heard=None):
        """As the function."""
        if heard is not None and heard.program.reports:
            run(optimised, arguments, sizes, options=options, heard=heard)
            return
        made = options, optimised.program, optimised.proven, optimised.written_first, sizes
        given = {name: value.tobytes() for name, value in arguments.items()}
        if (made, given) != (self._made, self._given):
            run(optimised, arguments, sizes, options=options)
            written = {name: value.copy() for name, value in arguments.items() if isinstance(value, np.ndarray)}
            self._made, self._given, self._written = made, given, written
        for name, value in self._written.items():
            arguments[name][...] = value


def assert_same(program, got, want):
    """What a Program has written is the same, bit by bit, all NaNs alike."""
    for name, type_ in [(memory.name, memory.type) for memory in program.buffers]:
        same = got[name].view(f"u{got[name].itemsize}") == want[name].view(f"u{want[name].itemsize}")
        if type_.is_float:
            with np.errstate(invalid="ignore"):
                same |= np.isnan(got[name]) & np.isnan(want[name])
        assert same.all(), f"{name}: want {want[name]}, got {got[name]}\n{program}"


class _Meeting:
    """A barrier as GPUs from sm_70 on have it: of the invocations that have not ended."""

    def __init__(self, count):
        self.count, self.here, self.turn = count, 0, 0
        self.changed = threading.Condition()

    def wait(self):
        with self.changed:
            turn = self.turn
            self.here += 1
            self._look()
            self.changed.wait_for(lambda: self.turn != turn, 20)

    def leave(self):
        with self.changed:
            self.count -= 1
            self._look()

    def _look(self):
        if self.here and self.here == self.count:
            self.here = 0
            self.turn += 1
            self.changed.notify_all()


def _run_all(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _workgroup(kernel, workgroup, grid, place, block, waits, shared_bytes):
    """The threads of a workgroup, one for each invocation; none where it has no barriers, and then it was run."""
    count = int(np.prod(workgroup))
    shared = ctypes.create_string_buffer(b"\xa5" * (shared_bytes + 16))  # it holds anything at all
    meeting, warps = _Meeting(count), _Warps()

    @_WAIT
    def wait():
        meeting.wait()

    def invocation(x, y, z):
        number = x + workgroup[0] * (y + workgroup[1] * z)

        @_EXCHANGE
        def exchange(kind, mask, value, b, c):
            return warps.exchange(number, kind, mask, value, b, c)

        # The addresses are taken here, so that what they lead to lives as long as the threads.
        addresses = (ctypes.cast(wait, ctypes.c_void_p).value, -(-ctypes.addressof(shared) // 16) * 16, ctypes.cast(exchange, ctypes.c_void_p).value)
        context = ctypes.create_string_buffer(struct.pack("<9I4xQQQ", x, y, z, *place, *grid, *addresses) + block)
        kernel(ctypes.addressof(context))
        meeting.leave()

    places = [(x, y, z) for z in range(workgroup[2]) for y in range(workgroup[1]) for x in range(workgroup[0])]
    if not waits:
        for at in places:
            invocation(*at)
        return []
    return [threading.Thread(target=invocation, args=at) for at in places]
