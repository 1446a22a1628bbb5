"""Programs as operators of PyTorch, for eager code, `torch.compile` and `torch.export`.

    axpy = vyre_py.interop.torch.op(program)
    z = axpy(x, y, 2.0)
    axpy.register_autograd(backward, setup_context=setup)

An operator is a `torch.library.CustomOpDef`: `register_autograd`, `register_vmap` and the rest are PyTorch's own, and other code finds it as
`torch.ops.vyre.axpy`.
"""

from __future__ import annotations

import keyword
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

import vyre_py as vp
from vyre_py.drivers.callable import CallEntry
from vyre_py.interop.torch.tensors import as_array, dtype_of, require_device
from vyre_py.ir.cached import cached_property
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import Dim, DimExpr, evaluate_extent
from vyre_py.ir.language.errors import Missing, Unsupported, shown
from vyre_py.ir.language.nodes import Memory, Param
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.types import Kind, u64

__all__ = ["op"]

_SCALARS: Final[Mapping[Kind, str]] = {Kind.BOOL: "bool", Kind.SINT: "int", Kind.UINT: "int", Kind.FLOAT: "float"}
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TAKEN: Final = ("name",)  # what `torch.ops.vyre` has of its own
# Keys of PyTorch's dispatcher that go before its own rule for operators, which is one for all devices.
_AUTOGRAD: Final = ("AutogradCPU", "AutogradCUDA", "AutogradMeta")
_NO_RULE: Final = (
    "call it under torch.no_grad(), or from a torch.autograd.Function that has the rule; register_autograd is there for Programs that only write results"
)
_kernels: Final = torch.library.Library("vyre", "FRAGMENT")
_made: Final[dict[str, tuple[vp.Program, Any]]] = {}
_lock: Final = threading.Lock()


@dataclass(frozen=True)
class _Signature:
    """How the arguments of an operator and a Program's stand to each other.

    The operator takes the buffers that are read, in order of declaration, then the params, then the dims that no argument's shape tells; it gives the
    buffers that are only written.
    """

    program: vp.Program

    @cached_property
    def given(self) -> tuple[Memory, ...]:
        """The buffers that are arguments."""
        return tuple(memory for memory in self.program.buffers if memory.access.reads)

    @cached_property
    def made(self) -> tuple[Memory, ...]:
        """The buffers that are results."""
        return tuple(memory for memory in self.program.buffers if not memory.access.reads)

    @cached_property
    def asked(self) -> tuple[Dim, ...]:
        """The dims that are arguments."""
        told = {expr for memory in self.given for expr in memory.shape}
        return tuple(dim for dim in self.program.dims if dim not in told)

    @property
    def schema(self) -> str:
        """The arguments and results in PyTorch's words."""
        marks = iter("abcdefghijklmnopqrstuvwxyz")
        words = [f"Tensor({next(marks)}!) {m.name}" if m.access.writes else f"Tensor {m.name}" for m in self.given]
        words += [f"{_param_type(param)} {param.name}" for param in self.program.params]
        words += [f"SymInt {dim.name}" for dim in self.asked]
        results = ", ".join(["Tensor"] * len(self.made))
        return f"({', '.join(words)}) -> {results if len(self.made) == 1 else f'({results})'}"

    @property
    def mutated(self) -> tuple[str, ...]:
        """The arguments that are changed in place."""
        return tuple(memory.name for memory in self.given if memory.access.writes)

    def require_tensors(self, arguments: Sequence[Any]) -> None:
        """Raises BindingError where None, which PyTorch lets through, is in the place of a tensor."""
        if none := [memory.name for memory, tensor in zip(self.given, arguments, strict=False) if tensor is None]:
            raise vp.BindingError(self.program.name, [f"{name!r} is None; a tensor is needed" for name in none])

    def results(self, arguments: Sequence[Any]) -> list[Any]:
        """Tensors for the results, of zeros, since a Program need not write every element. Raises BindingError for None in a tensor's place, for a rank that
        does not fit, and for tensors on different devices: PyTorch asks no more than this of tensors some of which are without memory."""
        tensors, sizes = arguments[: len(self.given)], dict[str, Any]()
        self.require_tensors(tensors)
        device = tensors[0].device if tensors else torch.device("cpu")
        for memory, tensor in zip(self.given, tensors, strict=True):
            if tensor.device != device:
                raise vp.BindingError(self.program.name, [f"{memory.name!r} is on {tensor.device}, where others are on {device}"])
            shape = memory.shape + ((None,) if memory.type.is_vector else ())
            if len(shape) != tensor.dim():
                raise vp.BindingError(self.program.name, [f"{memory.name!r} has {tensor.dim()} axes; {len(shape)} are needed"])
            for expr, size in zip(shape, tensor.shape, strict=True):
                if isinstance(expr, Dim):
                    sizes.setdefault(expr.name, size)
        sizes |= {dim.name: size for dim, size in zip(self.asked, arguments[len(arguments) - len(self.asked) :], strict=True)}
        return [torch.zeros(_shape(memory, sizes), dtype=dtype_of(memory.type), device=device) for memory in self.made]


def _param_type(param: Param) -> str:
    wide = param.type.scalar == u64  # PyTorch's int is of 63 bits and a sign
    return ("Scalar" if wide else _SCALARS[param.type.scalar.kind]) + ("[]" if param.type.is_vector else "")


def _shape(memory: Memory, sizes: Mapping[str, Any]) -> list[Any]:
    def size(expr: DimExpr) -> Any:
        return sizes[expr.name] if isinstance(expr, Dim) else evaluate_extent(expr, sizes)

    return [*map(size, memory.shape), *([memory.type.lanes] if memory.type.is_vector else [])]


def _answer(results: list[Any]) -> Any:
    return None if not results else results[0] if len(results) == 1 else tuple(results)


class _Call:
    """The operator's work; the Program is compiled for a device when it is first called there."""

    def __init__(self, signature: _Signature) -> None:
        self._signature = signature
        self._entries: dict[str, CallEntry] = {}

    def _entry(self, device: str) -> CallEntry:
        found = self._entries.get(device)
        if found is None:
            found = self._entries.setdefault(device, vp.device(device).compile_native(self._signature.program).callable())
        return found

    def __call__(self, *arguments: Any) -> Any:
        signature = self._signature
        count = len(signature.given)
        results = signature.results(arguments)
        (first, *_), arrays = [*arguments[:count], *results], dict[str, Any]()
        for memory, tensor in zip(signature.given, arguments[:count], strict=True):
            require_device(tensor.device, signature.program.name)
            arrays[memory.name] = tensor if memory.access.writes else tensor.contiguous()
        arrays |= {memory.name: tensor for memory, tensor in zip(signature.made, results, strict=True)}
        # A tensor with gaps, which is changed in place, is refused as a tensor.
        arrays = {name: tensor.detach() if first.is_cuda or not tensor.is_contiguous() else as_array(tensor) for name, tensor in arrays.items()}
        names = [*(param.name for param in signature.program.params), *(dim.name for dim in signature.asked)]
        self._entry(str(first.device))(**arrays, **dict(zip(names, arguments[count:], strict=True)))
        return _answer(results)


def op(program: vp.Program, name: str | None = None) -> Any:
    """The Program as an operator of PyTorch, `torch.ops.vyre.NAME`, for tensors on the CPU and on CUDA: a `torch.library.CustomOpDef`.

    Buffers that are read are arguments, those of `read_write` are changed in place, and those of `write` are results, allocated as zeros. Params follow, and
    then the dims that no argument's shape tells. A vector's components are one axis more. `name` is the Program's own unless given; names of arguments
    have to be identifiers. The same Program gives the same operator again.

    Raises ValidationError for what is no Program, and ValueError for a name that PyTorch cannot take, or that another Program has. The operator raises
    BindingError where arguments do not fit (PyTorch has errors of its own for numbers beyond 64 bits, and for arguments of other kinds), and Unsupported for
    tensors on other devices. So it does where it would change an argument in place, and one requires gradients while they are recorded: PyTorch takes no rule
    for such an operator, and would lose them. On CUDA it is enqueued on the stream that PyTorch works on. On the CPU it raises KernelAssertion for a failed
    assert; on CUDA the device's `synchronize` does.
    """
    given: object = program
    if not isinstance(given, vp.Program):
        raise vp.ValidationError(finding("V101", f"a {type(given).__name__} is not a Program; op takes one"))
    name = program.name if name is None else name
    signature = _Signature(program)
    for word in (name, *(m.name for m in program.buffers), *(p.name for p in program.params), *(d.name for d in program.dims)):
        if not _NAME.fullmatch(word) or keyword.iskeyword(word):
            raise ValueError(
                f"{shown(word)} cannot be a name in an operator of PyTorch: letters, digits and underscores are, behind a letter, but no word of Python's own"
            )
    if name in _TAKEN:
        raise ValueError(f"torch.ops.vyre.{name} is PyTorch's own: give the operator another name, as op(program, {name + '_op'!r})")
    with _lock:
        if name in _made:
            if _made[name][0] != program:
                raise ValueError(f"torch.ops.vyre.{name} is another Program already: give this one another name")
            return _made[name][1]
        made = _define(signature, name)
        _made[name] = program, made
    return made


def _define(signature: _Signature, name: str) -> Any:
    call: Callable[..., Any] = _Call(signature).__call__
    made = torch.library.custom_op(f"vyre::{name}", call, mutates_args=signature.mutated, schema=signature.schema)
    made.register_fake(lambda *arguments: _answer(signature.results(arguments)))
    if signature.mutated:
        _refuse_gradients(signature, name)
    return made


def _refuse_gradients(signature: _Signature, name: str) -> None:
    """Has calls that would lose gradients raise. PyTorch takes no rule for an operator that changes an argument, and runs it as if nobody asked for one."""
    operator = getattr(torch.ops.vyre, name).default

    def checked(keys: Any, *arguments: Any) -> Any:
        tensors = arguments[: len(signature.given)]
        signature.require_tensors(tensors)
        if torch.is_grad_enabled():
            wanting = [memory.name for memory, tensor in zip(signature.given, tensors, strict=True) if tensor.requires_grad]
            if wanting:
                what = f"gradients of {_listed(wanting)}, since it changes {_listed(signature.mutated)} in place"
                raise Unsupported(f"torch.ops.vyre.{name}", [Missing(what, help=_NO_RULE)])
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keys & torch._C._after_autograd_keyset, *arguments)

    for key in _AUTOGRAD:
        _kernels.impl(name, checked, key, with_keyset=True)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(map(repr, names))
