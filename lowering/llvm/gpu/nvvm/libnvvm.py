"""PTX by libNVVM, NVIDIA's own compiler of LLVM IR, through cuda-bindings: no CUDA toolkit, no GPU. Loaded when first asked for.

Its functions may be called from several threads at once (libNVVM's manual, 1.2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from vyre_py.ir.extras import CUDA
from vyre_py.ir.imports import importing
from vyre_py.lowering.errors import Missing, ToolchainError, Unsupported
from vyre_py.lowering.llvm.forking import LIBNVVM
from vyre_py.lowering.llvm.gpu.architectures import ARCHITECTURES, generation
from vyre_py.lowering.llvm.gpu.machine_code.ptx_fixes import mend
from vyre_py.lowering.llvm.gpu.nvvm.dialect import rewrite
from vyre_py.lowering.llvm.large import measure
from vyre_py.lowering.llvm.text import ModuleText

__all__ = ["assemble", "nvvm_text", "version"]

_WHO: Final = "libNVVM"

# The first architecture whose compiler is a recent LLVM; before it, LLVM 7.
_OPAQUE_SINCE: Final = 100

# What every kernel is compiled with: no contraction, which libNVVM does of itself, divisions and roots that round correctly. What numerics "fast" adds is
# in the text already, but for flushing.
_ALWAYS: Final = ("-fma=0", "-prec-div=1", "-prec-sqrt=1")

_NOTHING: Final = "define ptx_kernel void @nothing() {\nentry:\n  ret void\n}\n"
_RELEASE: Final = re.compile(r"Cuda compilation tools, release \S+, V(\S+)")
_LACKING: Final = re.compile(r"-arch=(\S+) is an unsupported option")

_VERSION: Final = re.compile(r"^\.version (\d+)\.(\d+)$", re.MULTILINE)
_INSTRUCTION: Final = re.compile(r"^[ \t]*(?:\{ )?(?:@!?%\w+[ \t]+)?([a-z]\w*(?:\.\w+)*)[ \t;]", re.MULTILINE)
# What the names of instructions are made of that PTX had in version 6.0 already.
_OLD: Final = (
    "abs add and atom bar bfe bfi bra brev call clz copysign cos cvt cvta div dp4a ex2 exit fence fma ld lg2 mad max membar min mov mul neg not or popc prmt "
    "rcp red redux rem ret rsqrt selp setp shf shfl shl shr sin slct sqrt st sub testp trap vote xor "
    "all any ballot bfly down idx match up "
    "approx full ftz rm rn rp rz rni rmi rpi rzi sat lo hi wide wrap clamp l r uni sync to "
    "global shared local param const nc relaxed acquire release acq_rel sc gpu cta sys gl volatile v2 v4 cas exch inc dec "
    "eq ne lt le gt ge lo ls hs equ neu ltu leu gtu geu num nan "
    "pred b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 f32 f64"
)
_WORDS: Final = frozenset(_OLD.split())
# Instructions that came later, or are made of such words and came later, and the version that has them.
_LATER: Final = (
    (re.compile(r"abs(?:\.ftz)?\.f16"), (6, 5)),
    (re.compile(r"redux\.sync\.\w+\.\w+"), (7, 0)),
    (re.compile(r"tanh\.approx\.f32|(?:min|max)(?:\.ftz)?\.f16|ex2\.approx\.f16"), (7, 0)),
    (re.compile(r"cp\.async\.(?:c[ag]\.shared\.global|commit_group|wait_group|wait_all)"), (7, 0)),
    (re.compile(r"griddepcontrol\.\w+"), (7, 8)),
    (re.compile(r"(?:add|sub|fma)(?:\.rn)?(?:\.sat)?\.f32\.f16"), (8, 6)),
)
# Hints, in which a newer version is no need: they go where they are too new.
_HINT: Final = re.compile(r'^[ \t]*\.pragma[ \t]+"used_bytes_mask [^"\n]*";\n', re.MULTILINE)
_HINT_SINCE: Final = (8, 3)
_UNKNOWN_HINT: Final = re.compile(r'\.pragma[ \t]+"(?!nounroll"|used_bytes_mask )')


@cache
def _library() -> Any:
    """The module `cuda.bindings.nvvm`, with the library behind it. Raises Unsupported where either is missing."""
    try:
        with importing:
            from cuda.bindings import nvvm

            nvvm.version()  # the first call loads it, under a lock
    except (ImportError, RuntimeError) as error:  # the second is what cuda-pathfinder raises when it finds no library
        cause = f"{CUDA}; {str(error).partition(chr(10))[0]}"
        raise Unsupported("vyre-py", [Missing(f"option codegen='nvvm' without {_WHO}", help=cause)]) from error
    return nvvm


def _log(nvvm: Any, program: int) -> str:
    log = bytearray(nvvm.get_program_log_size(program))
    nvvm.get_program_log(program, log)
    return log.rstrip(b"\0").decode(errors="replace").strip()


def _compile(text: str, options: Sequence[str]) -> str:
    """The PTX of a module in libNVVM's language. Raises ToolchainError with the library's log, and Unsupported for an option that it lacks."""
    nvvm = _library()
    with LIBNVVM.lock():
        program = nvvm.create_program()
        try:
            return _compiled(nvvm, program, text, options)
        finally:
            nvvm.destroy_program(program)


def _compiled(nvvm: Any, program: int, text: str, options: Sequence[str]) -> str:
    code = text.encode()
    try:
        nvvm.add_module_to_program(program, code, len(code), "vyre")
        nvvm.verify_program(program, len(options), options)
        nvvm.compile_program(program, len(options), options)
        ptx = bytearray(nvvm.get_compiled_result_size(program))
        nvvm.get_compiled_result(program, ptx)
    except nvvm.nvvmError as error:
        log = _log(nvvm, program) or str(error)
        if error.status == nvvm.Result.ERROR_INVALID_OPTION:
            target = _LACKING.search(log)
            raise Unsupported(_WHO, [Missing(f"target {target[1]}", help="codegen='llvm' may have it") if target else Missing(log)]) from error
        raise ToolchainError(_WHO, log, text) from error
    return ptx.rstrip(b"\0").decode()


@cache
def version() -> str:
    """The versions of the library and of its interface, "13.5.37/2.0": for the keys of caches. Raises Unsupported where the library is missing."""
    major, minor = _library().version()
    release = _RELEASE.search(_compile(rewrite(_NOTHING, typed=False), ()))  # no function gives it, but the head of what it writes does
    return f"{release[1] if release else '?'}/{major}.{minor}"


@cache
def _takes_version() -> bool:
    """Whether the library, which is there, can be told the version of PTX, for architectures from compute_100 on."""
    _library()
    try:
        _compile(rewrite(_NOTHING, typed=False), ("-arch=compute_100", "-ptx-version-target=86"))
    except Unsupported:
        return False
    return True


def _needed(ptx: str) -> tuple[int, int] | None:
    """The version of PTX that the instructions need, as far as it is known: None where one is not."""
    needed = (6, 0)
    if _UNKNOWN_HINT.search(ptx):
        return None
    for name in set(_INSTRUCTION.findall(ptx)):
        later = [since for pattern, since in _LATER if pattern.fullmatch(name)]
        if not later and not _WORDS.issuperset(name.split(".")):
            return None
        needed = max([needed, *later])
    return needed


def _bounded(ptx: str, arch: str) -> str:
    """The same PTX in the oldest version that has the architecture and all of its instructions: libNVVM names its newest, which a driver that is older
    than the library refuses. Where an instruction is not known here the version stays."""
    found, needed = _VERSION.search(ptx), _needed(ptx)
    if found is None or needed is None:
        return ptx
    oldest = tuple(map(int, ARCHITECTURES[arch].split(".")))
    written = min((int(found[1]), int(found[2])), max(oldest, needed))
    body = ptx[found.end() :] if written >= _HINT_SINCE else _HINT.sub("", ptx[found.end() :])
    return f"{ptx[: found.start()]}.version {written[0]}.{written[1]}{body}"


def nvvm_text(module: ModuleText | str, arch: str) -> str:
    """The text of a module, written for LLVM, as libNVVM gets it for an architecture. Needs no library. Raises ToolchainError that names what there is no
    form for."""
    return rewrite(str(module), typed=generation(arch) < _OPAQUE_SINCE)


def assemble(module: ModuleText | str, arch: str, level: int, *, fast: bool) -> str:
    """The PTX of a module, written for LLVM, for an architecture of `ARCHITECTURES`; at level 0, of 3, libNVVM optimises nothing. `fast` has it flush the
    subnormal numbers of f32. Lines of source are kept where the module has them.

    Raises Unsupported where the library is missing or lacks the architecture; ToolchainError with the library's log and the text
    that it refuses.
    """
    text = nvvm_text(module, arch)
    size = measure(text)
    level = 0 if size.large else level  # its passes have no other level, and take time with the square of a module's size
    options = [f"-arch={arch.replace('sm_', 'compute_')}", *_ALWAYS, f"-ftz={int(fast)}", f"-opt={3 if level else 0}"]
    if generation(arch) >= _OPAQUE_SINCE and _takes_version():
        options.append(f"-ptx-version-target={ARCHITECTURES[arch].replace('.', '')}")
    ptx = mend(size.run(lambda: _compile(text, options)))
    if ".extern .func" in ptx:
        raise ToolchainError(_WHO, "it made a call of something that it should know", text)
    return _bounded(ptx, arch)
