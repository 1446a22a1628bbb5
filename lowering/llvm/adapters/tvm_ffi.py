"""Functions for TVM FFI: LLVM IR of a `TVMFFISafeCallType` that takes DLPack's tensors and numbers, and hands them to a pipeline's native entry.

The convention is `tvm/ffi/c_api.h`: an argument is 16 bytes, the number of its type and a value; a tensor is a `DLTensor`, by itself or behind the header of an
object. What does not fit becomes an error of TVM FFI's, which is an exception in Python. On a GPU a call goes to the stream that TVM FFI has for it now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import Dim, DimConst, DimExpr
from vyre_py.ir.language.types import Kind, Type
from vyre_py.ir.text.declaration_printer import print_dim
from vyre_py.lowering.llvm.adapters.adapter_lines import AdapterLines, c_string
from vyre_py.lowering.statuses import CStatus

__all__ = ["FUNCTION_SYMBOL", "RAISE_SYMBOL", "STREAM_SYMBOL", "TvmPlace", "TvmTensor", "function_text", "takes_param"]

FUNCTION_SYMBOL: Final = "vyre_tvm_function"
RAISE_SYMBOL: Final = "TVMFFIErrorSetRaisedFromCStr"
STREAM_SYMBOL: Final = "TVMFFIEnvGetStream"
_INT, _BOOL, _FLOAT, _DL_TENSOR, _TENSOR, _HEADER_BYTES = 1, 2, 3, 7, 70, 24  # TVMFFITypeIndex, and sizeof(TVMFFIObject)
_LEGACY_STREAM: Final = 1  # how CUDA's functions know the stream that null stands for elsewhere


@dataclass(frozen=True, slots=True)
class TvmPlace:
    """Where tensors have to be: the device in words, DLPack's kind and number of it, and whether it has streams."""

    words: str
    kind: int
    number: int
    streams: bool


@dataclass(frozen=True, slots=True)
class TvmTensor:
    """A buffer as a tensor: its name, its type in words, the bytes of an element and its DLDataType as one number, the sizes of its axes, the components that
    one more axis has, 0 without it, and the numbers of the tensors from which it lies apart, since it is written."""

    name: str
    type_name: str
    size_bytes: int
    data_type: int
    shape: tuple[DimExpr, ...]
    lanes: int
    apart: tuple[int, ...]

    @property
    def rank(self) -> int:
        """How many axes it has, but for that of components."""
        return len(self.shape)


def takes_param(type_: Type) -> bool:
    """Whether a number of TVM FFI's, of 64 bits, can be a param of a type: those of two more roundings cannot, nor vectors."""
    return not type_.is_vector and (type_.kind is not Kind.FLOAT or type_.bits in (32, 64))


class _Function(AdapterLines):
    """The text, and the errors that it raises."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.raised = name, list[tuple[str, str]]()

    def error(self, kind: str, words: str) -> str:
        """The label of a block that raises."""
        if (kind, words) not in self.raised:
            self.raised.append((kind, words))
        return f"raise{self.raised.index((kind, words))}"

    def must(self, condition: str, kind: str, words: str) -> None:
        """Goes on where the condition holds, and raises elsewhere."""
        self.require([condition], f"go{condition[1:]}", self.error(kind, words))


def _typed(line: _Function, tensor: TvmTensor, found: str, types: Mapping[int, str]) -> None:
    """Goes on where the elements are of the tensor's type, and says what they are elsewhere."""
    word, wanted = line.load("i32", found, 20), f"{tensor.name!r} needs elements of {tensor.type_name}"
    others = [f"i32 {other}, label %{line.error('TypeError', f'{wanted}, got {name}')}" for other, name in types.items() if other != tensor.data_type]
    typed, odd = f"typed{found[2:]}", f"odd{found[2:]}"
    line.do(f"br i1 {line.emit(f'icmp eq i32 {word}, {tensor.data_type}')}, label %{typed}, label %{odd}")
    line.label(odd)
    line.do(f"switch i32 {word}, label %{line.error('TypeError', wanted)} [{' '.join(others)}]")
    line.label(typed)


def _tensor(line: _Function, number: int, tensor: TvmTensor, place: TvmPlace, types: Mapping[int, str]) -> str:
    """The DLTensor of an argument, which is what it has to be."""
    at = line.at("%args", 16 * number)
    kind, value = line.load("i32", at, 0), line.load("ptr", at, 8)
    plain = line.emit(f"icmp eq i32 {kind}, {_DL_TENSOR}")
    either = line.emit(f"or i1 {plain}, {line.emit(f'icmp eq i32 {kind}, {_TENSOR}')}")
    line.must(either, "TypeError", f"{tensor.name!r} must be a tensor")
    found = line.emit(f"select i1 {plain}, ptr {value}, ptr {line.at(value, _HEADER_BYTES)}")
    line.must(line.emit(f"icmp eq i64 {line.load('i64', found, 8)}, {place.kind | place.number << 32}"), "ValueError", f"{tensor.name!r} must be {place.words}")
    _typed(line, tensor, found, types)
    axes = tensor.rank + bool(tensor.lanes)
    line.must(line.emit(f"icmp eq i32 {line.load('i32', found, 16)}, {axes}"), "ValueError", f"{tensor.name!r} needs {axes} axes")
    return found


def _shape(line: _Function, tensor: TvmTensor, found: str) -> list[str]:
    """The sizes of a tensor's axes, whose elements lie side by side."""
    shape, strides = line.load("ptr", found, 24), line.load("ptr", found, 32)
    sizes = [line.load("i64", shape, 8 * axis) for axis in range(tensor.rank + bool(tensor.lanes))]
    if tensor.lanes:
        line.must(line.emit(f"icmp eq i64 {sizes[-1]}, {tensor.lanes}"), "ValueError", f"the last axis of {tensor.name!r} needs {tensor.lanes} components")
    expected, empty, apart = "1", "false", list[tuple[str, int, str]]()
    for axis in reversed(range(len(sizes))):
        apart.append((sizes[axis], axis, expected))
        expected = line.emit(f"mul i64 {expected}, {sizes[axis]}")
        empty = line.emit(f"or i1 {empty}, {line.emit(f'icmp eq i64 {sizes[axis]}, 0')}")
    label = f"strided{found[2:]}"
    dense = line.emit(f"icmp eq ptr {strides}, null")
    line.do(f"br i1 {line.emit(f'or i1 {dense}, {empty}')}, label %{label}, label %look{found[2:]}")
    line.label(f"look{found[2:]}")
    for size, axis, wanted in apart:
        single = line.emit(f"icmp eq i64 {size}, 1")
        fits = line.emit(f"icmp eq i64 {line.load('i64', strides, 8 * axis)}, {wanted}")
        line.must(line.emit(f"or i1 {single}, {fits}"), "ValueError", f"{tensor.name!r} must be contiguous")
    line.do(f"br label %{label}")
    line.label(label)
    return sizes[: tensor.rank]


def _number(line: _Function, number: int, name: str, type_: Type) -> str:
    """The value of an argument for a param, of its type in LLVM. A bool is one byte."""
    at = line.at("%args", 16 * number)
    kind, words = line.load("i32", at, 0), line.load("i64", at, 8)
    whole = line.emit(f"icmp eq i32 {kind}, {_INT}")
    if type_.kind is Kind.BOOL:
        line.must(line.emit(f"icmp eq i32 {kind}, {_BOOL}"), "TypeError", f"param {name!r} ({type_}) is a bool")
        return line.emit(f"zext i1 {line.emit(f'icmp ne i64 {words}, 0')} to i8")
    if type_.kind is Kind.FLOAT:
        given = line.emit(f"icmp eq i32 {kind}, {_FLOAT}")
        line.must(line.emit(f"or i1 {whole}, {given}"), "TypeError", f"param {name!r} ({type_}) is a number")
        double = line.emit(f"select i1 {given}, double {line.emit(f'bitcast i64 {words} to double')}, double {line.emit(f'sitofp i64 {words} to double')}")
        return double if type_.bits == 64 else line.emit(f"fptrunc double {double} to float")
    line.must(whole, "TypeError", f"param {name!r} ({type_}) is a whole number")
    signed = type_.kind is Kind.SINT
    least, most = (-(1 << type_.bits - 1), (1 << type_.bits - 1) - 1) if signed else (0, min((1 << type_.bits) - 1, (1 << 63) - 1))
    fits = line.emit(f"and i1 {line.emit(f'icmp sge i64 {words}, {least}')}, {line.emit(f'icmp sle i64 {words}, {most}')}")
    line.must(fits, "ValueError", f"param {name!r} ({type_}) is a number from {least} to {most}")
    return words if type_.bits == 64 else line.emit(f"trunc i64 {words} to i{type_.bits}")


def _llvm(type_: Type) -> str:
    if type_.kind is Kind.FLOAT:
        return "double" if type_.bits == 64 else "float"
    return "i8" if type_.kind is Kind.BOOL else f"i{type_.bits}"


def function_text(
    name: str, place: TvmPlace, tensors: Sequence[TvmTensor], params: Sequence[tuple[str, Type]], dims: Sequence[tuple[str, bool]], callable_: int, call: int,
    types: Mapping[int, str],
) -> str:  # fmt: skip
    """The text of the function for a Program of a name. It takes the tensors, which are all in one place, a number for each of the params, and one for each of
    the dims of which it is said that they are given; it ends in the function at `call`, as `vyre_callable_t` has it, with the descriptor at `callable_`.
    `types` has the names of elements by their DLDataType."""
    line, given = _Function(name), [dim for dim, asked in dims if asked]
    ranks = sum(tensor.rank for tensor in tensors)
    for array, size in (("addresses", len(tensors)), ("sizes", ranks + len(dims)), ("params", len(params))):
        line.do(f"%{array} = alloca i8, i64 {max(8, 8 * size)}, align 16")
    names = [*[tensor.name for tensor in tensors], *[param for param, _ in params], *given]
    line.must(line.emit(f"icmp eq i32 %count, {len(names)}"), "TypeError", f"{len(names)} arguments are needed: {', '.join(names)}")
    at = offset = 0
    for number, tensor in enumerate(tensors):
        found = _tensor(line, number, tensor, place, types)
        for axis in _shape(line, tensor, found):
            line.store("i64", axis, "%sizes", 8 * at)
            at += 1
        begin = line.emit(f"getelementptr i8, ptr {line.load('ptr', found, 0)}, i64 {line.load('i64', found, 40)}")
        line.store("ptr", begin, "%addresses", 8 * number)
    for number, (param, type_) in enumerate(params, len(tensors)):
        line.do(f"store {_llvm(type_)} {_number(line, number, param, type_)}, ptr {line.at('%params', offset)}, align 1")
        offset += type_.size_bytes
    for number, (dim, asked) in enumerate(dims):
        value = "-1"
        if asked:
            where = line.at("%args", 16 * (len(tensors) + len(params) + given.index(dim)))
            value = line.load("i64", where, 8)
            whole = line.emit(f"icmp eq i32 {line.load('i32', where, 0)}, {_INT}")
            line.must(line.emit(f"and i1 {whole}, {line.emit(f'icmp sge i64 {value}, 0')}"), "TypeError", f"dim {dim!r} is a whole number from 0")
        line.store("i64", value, "%sizes", 8 * (at + number))
    _called(line, place, callable_, call)
    _misshapen(line, tensors)
    _overlapping(line, tensors)
    return _text(line)


def _misshapen(line: _Function, tensors: Sequence[TvmTensor]) -> None:
    """The block for sizes that contradict each other: it looks which do."""
    line.label("misshapen")
    first, others, at = dict[str, tuple[str, str]](), list[str](), 0
    for tensor in tensors:
        for axis, expr in enumerate(tensor.shape):
            size, where = line.load("i64", "%sizes", 8 * at), f"axis {axis} of {tensor.name!r}"
            at += 1
            if isinstance(expr, DimConst):
                line.must(line.emit(f"icmp eq i64 {size}, {expr.value}"), "ValueError", f"{where} needs {expr.value} elements")
            elif not isinstance(expr, Dim):
                others.append(f"{where} ({print_dim(expr)})")
            elif first.setdefault(expr.name, (size, where))[1] != where:
                known, source = first[expr.name]
                line.must(line.emit(f"icmp eq i64 {size}, {known}"), "ValueError", f"dim {expr.name!r} is another size along {where} than along {source}")
    left = f"{' or '.join(others)} has not the size that the others ask for" if others else CStatus.SHAPE.words
    line.do(f"br label %{line.error('ValueError', left)}")


def _overlapping(line: _Function, tensors: Sequence[TvmTensor]) -> None:
    """The block for tensors that share bytes: it looks which do."""
    line.label("overlapping")
    begins, ends, some, at = list[str](), list[str](), list[str](), 0
    for number, tensor in enumerate(tensors):
        size = str(tensor.size_bytes)
        for _ in tensor.shape:
            size = line.emit(f"mul i64 {size}, {line.load('i64', '%sizes', 8 * at)}")
            at += 1
        begins.append(line.load("i64", "%addresses", 8 * number))
        ends.append(line.emit(f"add i64 {begins[-1]}, {size}"))
        some.append(line.emit(f"icmp ne i64 {size}, 0"))
    for one, tensor in enumerate(tensors):
        for two in tensor.apart:
            before, behind = line.emit(f"icmp ult i64 {begins[one]}, {ends[two]}"), line.emit(f"icmp ult i64 {begins[two]}, {ends[one]}")
            shared = line.emit(f"and i1 {line.emit(f'and i1 {some[one]}, {some[two]}')}, {line.emit(f'and i1 {before}, {behind}')}")
            words = f"{tensor.name!r} is written and overlaps {tensors[two].name!r}; give separate memory, or copy one of them"
            line.must(line.emit(f"xor i1 true, {shared}"), "ValueError", words)
    line.do(f"br label %{line.error('ValueError', CStatus.OVERLAP.words)}")


def _called(line: _Function, place: TvmPlace, callable_: int, call: int) -> None:
    stream = "null"
    if place.streams:
        now = line.emit(f"call ptr @{STREAM_SYMBOL}(i32 {place.kind}, i32 {place.number})")
        stream = line.emit(f"select i1 {line.emit(f'icmp eq ptr {now}, null')}, ptr inttoptr (i64 {_LEGACY_STREAM} to ptr), ptr {now}")
    line.do(f"%callable = inttoptr i64 {callable_} to ptr")
    line.do(f"%call = inttoptr i64 {call} to ptr")
    status = line.emit(f"call i32 %call(ptr %callable, ptr %addresses, ptr %sizes, ptr %params, ptr {stream})")
    looked_at = {CStatus.SHAPE: "misshapen", CStatus.OVERLAP: "overlapping"}
    told = {s: line.error("RuntimeError" if s >= CStatus.STREAM else "ValueError", s.words) for s in CStatus if s is not CStatus.OK and s not in looked_at}
    arms = [f"i32 {int(s)}, label %{label}" for s, label in (told | looked_at).items()]
    other = line.error("RuntimeError", "the device's library refuses the launch")
    line.do(f"switch i32 {status}, label %{other} [i32 0, label %fine {' '.join(arms)}]")
    line.label("fine")
    line.do("store i32 0, ptr %result")  # kTVMFFINone
    line.do("ret i32 0")


def _text(line: _Function) -> str:
    texts, blocks = list[str](), list[str]()
    for number, (kind, words) in enumerate(line.raised):
        texts += [c_string(f"kind{number}", kind), c_string(f"text{number}", f"{line.name}: {words}")]
        blocks += [f"raise{number}:", f"  call void @{RAISE_SYMBOL}(ptr @kind{number}, ptr @text{number})", "  ret i32 -1"]
    declared = [f"declare void @{RAISE_SYMBOL}(ptr, ptr)", f"declare ptr @{STREAM_SYMBOL}(i32, i32)"]
    head = f"define i32 @{FUNCTION_SYMBOL}(ptr %handle, ptr %args, i32 %count, ptr %result) {{"
    return "\n".join([*texts, *declared, head, "entry:", *line.lines, *blocks, "}", ""])
