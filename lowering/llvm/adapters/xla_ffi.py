"""Handlers for XLA: LLVM IR of functions that XLA calls for a custom call, and that hand what they are given to a pipeline's native entry.

XLA's interface for such handlers is `xla/ffi/api/c_api.h`, which lies in jaxlib. A handler reads one structure, the call frame, at fixed offsets; the fields
that are read here are those of version 0.1, and a handler says that this is its version, since XLA refuses those of a newer one than its own. It is straight
code but for its refusals: every operand and result is compared with what the handler was made for, then addresses, sizes and params are laid out for
the entry, which keeps the rules of binding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.llvm.adapters.adapter_lines import MEMCPY, AdapterLines, c_string
from vyre_py.lowering.statuses import CStatus

__all__ = ["DATA_TYPES", "HANDLER_SYMBOL", "XlaBuffer", "XlaFace", "XlaParam", "handler_text", "refusing_text", "streaming_text"]

HANDLER_SYMBOL: Final = "vyre_xla_handler"
# Beside those of `CStatus`: a frame that is not what the handler was made for, and a device that it was not made for.
_MISFIT, _ELSEWHERE = -64, -65
_VERSION: Final = (0, 1)
_COMMAND_BUFFERS: Final = 1  # the trait of a handler whose work may be recorded once and replayed
_STREAM_AT, _ORDINAL_AT = 80, 184  # of the interface: the functions that tell a call's stream and device
_LEGACY_STREAM: Final = 1  # how CUDA's functions know the stream that null stands for elsewhere
_CALL_AT: Final = 8  # of `vyre_callable_t`
_MESSAGE_BYTES: Final = 2048  # a name has at most 256 characters

# Name of a scalar type, or of a pair that NumPy has as one number -> XLA_FFI_DataType.
DATA_TYPES: Final[Mapping[str, int]] = {
    "bool": 1, "i8": 2, "i16": 3, "i32": 4, "i64": 5, "u8": 6, "u16": 7, "u32": 8, "u64": 9, "f16": 10, "f32": 11, "f64": 12, "bf16": 16,
    "f8e5m2": 19, "f8e4m3": 20, "complex64": 15, "complex128": 18,
}  # fmt: skip


class XlaCode(IntEnum):
    """XLA_FFI_Error_Code: the kinds of errors that handlers report."""

    INVALID_ARGUMENT = 3
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


# What each status is to XLA, and its words.
_CODES: Final[Mapping[CStatus, XlaCode]] = {
    CStatus.LOST: XlaCode.UNAVAILABLE, CStatus.FREED: XlaCode.INTERNAL, CStatus.MEMORY: XlaCode.RESOURCE_EXHAUSTED, CStatus.BUSY: XlaCode.UNAVAILABLE,
    CStatus.STREAM: XlaCode.INTERNAL, CStatus.CODE: XlaCode.UNAVAILABLE, **dict.fromkeys(
        (CStatus.NULL, CStatus.ALIGNMENT, CStatus.OVERLAP, CStatus.SHAPE, CStatus.SIZE, CStatus.GRID), XlaCode.INVALID_ARGUMENT
    ),
}  # fmt: skip
_STATUSES: Final[Mapping[int, tuple[XlaCode, str]]] = {
    **{int(status): (_CODES[status], status.words) for status in CStatus if status is not CStatus.OK},
    _MISFIT: (XlaCode.INTERNAL, "operands, results or attributes are not what the handler was made for"),
    _ELSEWHERE: (XlaCode.UNIMPLEMENTED, "it was not compiled for this device"),
}


@dataclass(frozen=True, slots=True)
class XlaBuffer:
    """A buffer of the interface as XLA has it: the numbers of its operand and of its result, None where it has none (where it has both, they are one
    memory); its data type; the axes that are sizes; the number of components that one more axis has, 0 where there is no such axis; and whether it is
    `single`, a buffer of one element, which has no axis for that."""

    operand: int | None
    result: int | None
    data_type: int
    rank: int
    lanes: int
    single: bool = False


@dataclass(frozen=True, slots=True)
class XlaParam:
    """A param that is an operand: its number, data type, components (0 for a scalar), and where its bytes lie among those of all params."""

    operand: int
    data_type: int
    lanes: int
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class XlaFace:
    """What a handler is called with. Beside operands and results that is one attribute, an array of words of 64 bits: one for each dim (given by name, or
    -1), then the bytes of all params, in which those of operands count for nothing. `kept` says which of these bytes are the entry's, as offsets and sizes in
    order; None for all."""

    operands: int
    results: int
    buffers: tuple[XlaBuffer, ...]
    params: tuple[XlaParam, ...]
    dims: int
    params_bytes: int
    kept: tuple[tuple[int, int], ...] | None = None


def _answer(line: AdapterLines) -> None:
    """Answers XLA's question for version and traits, which it asks by an extension of the frame."""
    extension = line.load("ptr", "%frame", 8)
    line.do(f"br i1 {line.emit(f'icmp eq ptr {extension}, null')}, label %run, label %asked")
    line.label("asked")
    kind = line.load("i32", extension, 8)
    line.do(f"br i1 {line.emit(f'icmp eq i32 {kind}, 1')}, label %answer, label %run")
    line.label("answer")
    metadata = line.load("ptr", extension, 24)
    for offset, value in ((24, _VERSION[0]), (28, _VERSION[1]), (32, _COMMAND_BUFFERS)):
        line.store("i32", value, metadata, offset)
    line.do("ret ptr null")


def _frame(line: AdapterLines, face: XlaFace) -> tuple[list[str], list[str], str]:
    """The operands and results, and the words of the attribute, of a frame that has as many as it should."""
    word_count = face.dims + -(-face.params_bytes // 8)
    counts = [(56, face.operands), (96, face.results), (136, 1)]
    line.require([line.emit(f"icmp eq i64 {line.load('i64', '%frame', offset)}, {count}") for offset, count in counts], "counted")
    lists = [(line.load("ptr", "%frame", 72), face.operands), (line.load("ptr", "%frame", 112), face.results)]
    operands, results = [[line.load("ptr", base, 8 * number) for number in range(count)] for base, count in lists]
    kind = line.load("i32", line.load("ptr", "%frame", 144), 0)
    line.require([line.emit(f"icmp eq i32 {kind}, 1")], "array")  # XLA_FFI_AttrType_ARRAY
    attribute = line.load("ptr", line.load("ptr", "%frame", 160), 0)
    type_, length = line.load("i32", attribute, 0), line.load("i64", attribute, 8)
    words = line.emit(f"icmp eq i32 {type_}, {DATA_TYPES['i64']}"), line.emit(f"icmp eq i64 {length}, {max(1, word_count)}")
    line.require(words, "words")
    return operands, results, line.load("ptr", attribute, 16)


def _typed(line: AdapterLines, kinds: Sequence[tuple[str, int, int, int]]) -> None:
    """Compares XLA's buffers with what they have to be: data type, rank and components."""
    found = []
    for buffer, data_type, rank, lanes in kinds:
        found.append(line.emit(f"icmp eq i32 {line.load('i32', buffer, 16)}, {data_type}"))
        found.append(line.emit(f"icmp eq i64 {line.load('i64', buffer, 32)}, {rank + bool(lanes)}"))
    line.require(found, "typed")
    last = [line.load("i64", line.load("ptr", buffer, 40), 8 * rank) for buffer, _, rank, lanes in kinds if lanes]
    lanes_of = [lanes for *_, lanes in kinds if lanes]
    line.require([line.emit(f"icmp eq i64 {size}, {lanes}") for size, lanes in zip(last, lanes_of, strict=True)], "fitting")


def _laid_out(line: AdapterLines, face: XlaFace, operands: Sequence[str], results: Sequence[str], words: str) -> None:
    """Fills addresses, sizes and params. A result takes over its operand's memory, or the call is refused."""
    at, shared = 0, []
    for number, buffer in enumerate(face.buffers):
        given = results[buffer.result] if buffer.result is not None else operands[buffer.operand or 0]
        address = line.load("ptr", given, 24)
        if buffer.result is not None and buffer.operand is not None:
            shared.append(line.emit(f"icmp eq ptr {address}, {line.load('ptr', operands[buffer.operand], 24)}"))
        line.store("ptr", address, "%addresses", 8 * number)
        shape = line.load("ptr", given, 40)
        for axis in range(buffer.rank):
            line.store("i64", line.load("i64", shape, 8 * axis), "%sizes", 8 * (at + axis))
        if buffer.single:
            line.store("i64", 1, "%sizes", 8 * at)
        at += buffer.rank + buffer.single
    if face.dims:
        line.copy(line.at("%sizes", 8 * at), words, 8 * face.dims)
    put = 0
    for offset, size_bytes in [(0, face.params_bytes)] if face.kept is None else face.kept:
        line.copy(line.at("%params", put), line.at(words, 8 * face.dims + offset), size_bytes)
        put += size_bytes
    for param in face.params:
        line.copy(line.at("%params", param.offset_bytes), line.load("ptr", operands[param.operand], 24), param.size_bytes)
    line.require(shared, "shared")


def _refusal(name: str, statuses: Mapping[int, tuple[XlaCode, str]]) -> str:
    """A function that makes XLA's error from a status."""
    line, constants = AdapterLines(), []
    text, code = "@text_other", str(int(XlaCode.INTERNAL))
    for number, (status, (kind, words)) in enumerate(statuses.items()):
        constants.append(c_string(f"text{number}", f"{name}: {words}".replace("%", "%%")))
        found = line.emit(f"icmp eq i32 %status, {status}")
        text = line.emit(f"select i1 {found}, ptr @text{number}, ptr {text}")
        code = line.emit(f"select i1 {found}, i32 {int(kind)}, i32 {code}")
    constants.append(c_string("text_other", f"{name}: the device's library refuses the launch, status ".replace("%", "%%") + "%d"))
    line.do(f"%message = alloca i8, i64 {_MESSAGE_BYTES}")
    line.emit(f"call i32 (ptr, i64, ptr, ...) @snprintf(ptr %message, i64 {_MESSAGE_BYTES}, ptr {text}, i32 %status)")
    line.do("%arguments = alloca i8, i64 32, align 8")
    for type_, value, offset in (("i64", 28, 0), ("ptr", "null", 8), ("ptr", "%message", 16), ("i32", code, 24)):
        line.store(type_, value, "%arguments", offset)
    create = line.load("ptr", line.load("ptr", "%frame", 16), 48)
    line.do(f"ret ptr {line.emit(f'call ptr {create}(ptr %arguments)')}")
    head = "define internal ptr @refusal(ptr %frame, i32 %status) noinline cold {"
    return "\n".join([*constants, "declare i32 @snprintf(ptr, i64, ptr, ...)", head, *line.lines, "}"])


# What asks one of XLA's threads to run a task, given the frame.
_SCHEDULE: Final = """
define internal i32 @schedule(ptr %frame, ptr %task, ptr %data) {
  %api_at = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api_at
  %context_at = getelementptr i8, ptr %frame, i64 24
  %context = load ptr, ptr %context_at
  %words = alloca [5 x i64], align 8
  store i64 40, ptr %words
  %extension = getelementptr i8, ptr %words, i64 8
  store ptr null, ptr %extension
  %whose = getelementptr i8, ptr %words, i64 16
  store ptr %context, ptr %whose
  %what = getelementptr i8, ptr %words, i64 24
  store ptr %task, ptr %what
  %with = getelementptr i8, ptr %words, i64 32
  store ptr %data, ptr %with
  %schedule_at = getelementptr i8, ptr %api, i64 136
  %schedule = load ptr, ptr %schedule_at
  %error = call ptr %schedule(ptr %words)
  %taken = icmp eq ptr %error, null
  br i1 %taken, label %done, label %refused
done:
  ret i32 0
refused:
  store i64 24, ptr %words
  store ptr %error, ptr %whose
  %destroy_at = getelementptr i8, ptr %api, i64 64
  %destroy = load ptr, ptr %destroy_at
  call void %destroy(ptr %words)
  ret i32 1
}"""


def _threads(line: AdapterLines, count: int, quick: int) -> str:
    line.do("%threads = alloca i8, i64 32, align 8")
    for type_, value, offset in (("ptr", "@schedule", 0), ("ptr", "%frame", 8), ("i64", count, 16), ("i64", quick, 24)):
        line.store(type_, value, "%threads", offset)
    return "%threads"


def _defined(lines: Sequence[str]) -> str:
    return "\n".join([f"define ptr @{HANDLER_SYMBOL}(ptr %frame) {{", "entry:", *lines, "}", ""])


def _begun(face: XlaFace) -> AdapterLines:
    """A handler up to what it calls, with addresses, sizes and params laid out."""
    line = AdapterLines()
    ranks = sum(buffer.rank + buffer.single for buffer in face.buffers)
    for array, size_bytes in (("addresses", 8 * len(face.buffers)), ("sizes", 8 * (ranks + face.dims)), ("params", face.params_bytes)):
        line.do(f"%{array} = alloca i8, i64 {max(8, size_bytes)}, align 16")
    _answer(line)
    line.label("run")
    operands, results, words = _frame(line, face)
    kinds = [(operands[b.operand], b.data_type, b.rank, b.lanes) for b in face.buffers if b.operand is not None]
    kinds += [(results[b.result], b.data_type, b.rank, b.lanes) for b in face.buffers if b.result is not None]
    _typed(line, [*kinds, *[(operands[p.operand], p.data_type, 0, p.lanes) for p in face.params]])
    _laid_out(line, face, operands, results, words)
    return line


def _ended(line: AdapterLines, name: str, status: str, block: str, others: str = "") -> str:
    """The whole text, whose last instruction gave a status in a block; `others` are the statuses of further blocks, as a phi has them."""
    line.do(f"br i1 {line.emit(f'icmp eq i32 {status}, 0')}, label %fine, label %failed")
    line.label("fine")
    line.do("ret ptr null")
    line.label("misfit")
    line.do("br label %failed")
    line.label("failed")
    why = line.emit(f"phi i32 [{_MISFIT}, %misfit], [{status}, %{block}]{others}")
    line.do(f"ret ptr {line.emit(f'call ptr @refusal(ptr %frame, i32 {why})')}")
    return "\n".join([MEMCPY, _refusal(name, _STATUSES), _SCHEDULE, _defined(line.lines)])


def handler_text(name: str, face: XlaFace, callable_: int, call: int, threads: int, quick: int = 0) -> str:
    """The text of `ptr vyre_xla_handler(ptr frame)` for a Program of a name. It ends in a call of the function at `call`, as `vyre_callable_t` has it, with the
    descriptor at `callable_`; what that gives becomes an error of XLA's. Where `threads` is not 0 the stream's place has XLA's threads, of which
    so many are asked to help, though not for grids of up to `quick` invocations (`drivers/cpu/shared_call.py`)."""
    line = _begun(face)
    lent = _threads(line, threads, quick) if threads else "null"
    line.do(f"%callable = inttoptr i64 {callable_} to ptr")
    line.do(f"%call = inttoptr i64 {call} to ptr")
    status = line.emit(f"call i32 %call(ptr %callable, ptr %addresses, ptr %sizes, ptr %params, ptr {lent})")
    return _ended(line, name, status, "shared")


def _asked(line: AdapterLines, offset: int, type_: str, told: str) -> str:
    """What XLA says of the call by a function of its interface, at a label; its error is the handler's own."""
    for type_of, value, at in (("i64", 32, 0), ("ptr", "null", 8), ("ptr", line.load("ptr", "%frame", 24), 16), ("i64", 0, 24)):
        line.store(type_of, value, "%question", at)
    error = line.emit(f"call ptr {line.load('ptr', line.load('ptr', '%frame', 16), offset)}(ptr %question)")
    line.do(f"br i1 {line.emit(f'icmp eq ptr {error}, null')}, label %{told}, label %{told}.refused")
    line.label(f"{told}.refused")
    line.do(f"ret ptr {error}")
    line.label(told)
    return line.load(type_, "%question", 24)


def streaming_text(name: str, face: XlaFace, callables: Sequence[int]) -> str:
    """The text of a handler for devices with streams: `callables` has the descriptor of a `vyre_callable_t` for each device by its number, 0 for none. The
    call is enqueued on XLA's own stream. A face has no params that are operands: these lie on the device."""
    assert not face.params  # the caller refuses them
    line = _begun(face)
    line.do("%question = alloca i8, i64 32, align 8")
    # An interface that is too old for the question is one of a device.
    size = line.load("i64", line.load("ptr", "%frame", 16), 0)
    line.do(f"br i1 {line.emit(f'icmp ugt i64 {size}, {_ORDINAL_AT}')}, label %ask, label %ordered")
    line.label("ask")
    told = _asked(line, _ORDINAL_AT, "i32", "placed")
    line.do("br label %ordered")
    line.label("ordered")
    number = line.emit(f"phi i32 [0, %shared], [{told}, %placed]")
    line.do(f"br i1 {line.emit(f'icmp ult i32 {number}, {len(callables)}')}, label %known, label %elsewhere")
    line.label("elsewhere")
    line.do("br label %failed")
    line.label("known")
    place = line.emit(f"getelementptr i64, ptr @callables, i64 {line.emit(f'zext i32 {number} to i64')}")
    word = line.load("i64", place, 0)
    line.do(f"br i1 {line.emit(f'icmp eq i64 {word}, 0')}, label %elsewhere, label %here")
    line.label("here")
    stream = _asked(line, _STREAM_AT, "ptr", "call")
    legacy = line.emit(f"icmp eq ptr {stream}, null")
    chosen = line.emit(f"select i1 {legacy}, ptr inttoptr (i64 {_LEGACY_STREAM} to ptr), ptr {stream}")
    callable_ = line.emit(f"inttoptr i64 {word} to ptr")
    status = line.emit(f"call i32 {line.load('ptr', callable_, _CALL_AT)}(ptr {callable_}, ptr %addresses, ptr %sizes, ptr %params, ptr {chosen})")
    table = f"@callables = private constant [{len(callables)} x i64] [{', '.join([f'i64 {at}' for at in callables])}]\n"
    return table + _ended(line, name, status, "call", f", [{_ELSEWHERE}, %elsewhere]")


def refusing_text(name: str, words: str) -> str:
    """The text of a handler that refuses every call of a Program of a name, for a platform of XLA's for which there is none."""
    line = AdapterLines()
    _answer(line)
    line.label("run")
    line.do(f"ret ptr {line.emit(f'call ptr @refusal(ptr %frame, i32 {_MISFIT})')}")
    return "\n".join([_refusal(name, {_MISFIT: (XlaCode.UNIMPLEMENTED, words)}), _defined(line.lines)])
