"""Models as compiled Programs, which run without PyTorch: `export`.

`torch.export` captures the model, Inductor makes kernels of it, and one call with the given arguments tells which kernels run, in which order, and on what. So
shapes are those of the arguments. Products of matrices and convolutions are sums of products, in kernels like all else.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._python_dispatch import TorchDispatchMode

import vyre_py as vp
from vyre_py.interop.exported import ExportedModel, ModelInput, ModelOutput, ModelStep
from vyre_py.interop.torch.backend import compile_graph
from vyre_py.interop.torch.runtime import TensorKernel, watching
from vyre_py.interop.torch.tensors import TYPES, as_array, require_cpu
from vyre_py.ir.language.nodes import Memory
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.native import Targets, parsed

__all__ = ["export"]

aten: Final = torch.ops.aten
_WHO: Final = "an exported model"
_OPTIONS: Final[Mapping[str, Any]] = {
    "force_pointwise_cat": True,  # parts of one memory are no arguments of their own
    "allow_buffer_reuse": False,  # the chain plans memory
}
# What happens on the host without touching elements: it moves nothing, and computes nothing.
_FREE: Final = frozenset({
    "empty", "empty_strided", "as_strided", "view", "_unsafe_view", "_reshape_alias", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze",
    "slice", "select", "alias", "detach",
})  # fmt: skip


# ---------------------------------------------------------------- products


def _matrix_product(a: Any, b: Any) -> Any:
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2, dtype=a.dtype).contiguous()  # as the op's own result, which views rely on


def _added(bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = _matrix_product(a, b)
    product = product if alpha == 1 else product * alpha
    return product + (bias if beta == 1 else bias * beta)


def _convolution(
    x: Any, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Any, groups: int
) -> Any:
    """Windows, times the weights, summed over channels and the axes of a window; a transposed one stays PyTorch's."""
    if transposed:
        return NotImplemented
    axes = len(stride)
    x = torch.nn.functional.pad(x, [side for each in reversed(padding) for side in (each, each)])
    windows = x.reshape(x.shape[0], groups, 1, x.shape[1] // groups, *x.shape[2:])
    for axis in range(axes):
        width = (weight.shape[2 + axis] - 1) * dilation[axis] + 1
        windows = windows.unfold(4 + axis, width, stride[axis])[..., :: dilation[axis]]
    kernel = weight.reshape(1, groups, weight.shape[0] // groups, weight.shape[1], *[1] * axes, *weight.shape[2:])
    summed = (windows * kernel).sum([3, *range(-axes, 0)], dtype=x.dtype)
    found = summed.reshape(x.shape[0], weight.shape[0], *summed.shape[3:]).contiguous()
    return found if bias is None else found + bias.reshape(-1, *[1] * axes)


def _attention(*args: Any, **kwargs: Any) -> Any:
    """PyTorch's own decomposition, whose result lies as that of the op, which views rely on: heads side by side."""
    found, *rest = torch._decomp.decomposition_table[_ATTENTION](*args, **kwargs)
    return found.transpose(1, 2).contiguous().transpose(1, 2), *rest


_ATTENTION: Final = aten._scaled_dot_product_flash_attention_for_cpu.default
_PRODUCTS: Final[Mapping[Any, Any]] = {
    _ATTENTION: _attention,
    aten.mm.default: _matrix_product, aten.bmm.default: _matrix_product, aten.addmm.default: _added, aten.baddbmm.default: _added,
    aten.convolution.default: _convolution,
}  # fmt: skip


# ---------------------------------------------------------------- what a call does


class _HostOps(TorchDispatchMode):  # type: ignore[misc]  # PyTorch has no types for this checker
    """Collects the ops that PyTorch runs itself between kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ not in _FREE or func.namespace != "aten":
            self.found[str(func)] = None
        return func(*args, **(kwargs or {}))


class _Recorder:
    """What kernels are launched on: memories as values, each by where it begins. All tensors are kept, so that no memory is used twice."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.targets = targets
        self.values: dict[int, tuple[str, Any, int]] = {}  # address -> name, dtype, elements
        self.fixed: dict[str, str] = {}  # values that stay as they are -> what they are
        self.constants: dict[str, Any] = {}
        self.steps: list[ModelStep] = []
        self.artifacts: dict[str, int] = {}
        self.made: list[Any] = []
        self._kept: list[Any] = []

    def hold(self, tensor: Any, what: str, name: str, elements: int) -> str:
        """A name for the memory of a tensor."""
        self._kept.append(tensor)
        self.values[tensor.untyped_storage().data_ptr()] = name, tensor.dtype, elements
        if what:
            self.fixed[name] = what
        return name

    def constant(self, tensor: Any, elements: int) -> str:
        """The memory of a tensor as it is now, as a constant."""
        name = self.hold(tensor, "a constant", f"c{len(self.constants)}", elements)
        self.constants[name] = np.ascontiguousarray(as_array(torch.as_strided(tensor, (elements,), (1,), 0))).copy()
        return name

    def launched(self, kernel: TensorKernel, arguments: tuple[Any, ...]) -> None:
        """A launch, as it begins."""
        interface = kernel.pipeline.artifact.interface
        tensors, numbers = arguments[: kernel.tensor_count], arguments[kernel.tensor_count :]
        sizes, extents = kernel.sizes(numbers)
        given = sizes | {param.name: int(number) for param, number in zip(interface.params, numbers[len(sizes) :], strict=True)}
        values = {memory.name: self._value(memory, tensor, count) for memory, tensor, count in zip(interface.buffers, tensors, extents, strict=False)}
        report = ""
        if kernel.problems:
            report = values[interface.buffers[-1].name] = f"report{len(self.steps)}"
        if kernel.text not in self.artifacts:
            self.artifacts[kernel.text] = len(self.made)
            self.made.append(vp.compile_native(vp.Program.from_text(kernel.text), self.targets))
        self.steps.append(ModelStep(self.artifacts[kernel.text], values, given, report, kernel.problems))

    def _value(self, memory: Memory, tensor: Any, elements: int) -> str:
        if tensor.storage_offset():
            raise Unsupported(_WHO, [Missing("a kernel that is called with a part of a memory")])
        known = self.values.get(tensor.untyped_storage().data_ptr())
        if known is None:
            return self.constant(tensor, elements) if not memory.access.writes else self.hold(tensor, "", f"v{len(self.values)}", elements)
        name, dtype, count = known
        if memory.access.writes and name in self.fixed:
            raise Unsupported(_WHO, [Missing(f"changes of {self.fixed[name]} in place")])
        if (dtype, count) != (tensor.dtype, elements):
            raise Unsupported(_WHO, [Missing(f"a memory of {count} elements of {dtype} that is {elements} of {tensor.dtype} elsewhere")])
        return name

    def output(self, tensor: Any) -> ModelOutput:
        """What a result is."""
        known = self.values.get(tensor.untyped_storage().data_ptr())
        count = tensor.untyped_storage().nbytes() // tensor.element_size()
        name, dtype, _ = (self.constant(tensor, count), tensor.dtype, count) if known is None else known
        if dtype != tensor.dtype or tensor.dtype not in TYPES:
            raise Unsupported(_WHO, [Missing(f"a result of {tensor.dtype}")])
        return ModelOutput(name, TYPES[dtype].name, tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))


def _flat(program: Any, arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The arguments of an exported graph, and those of them that are a call's own."""
    users, flat, own = iter(arguments), [], []
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            value = next(users)
            flat.append(value.detach().clone(memory_format=torch.contiguous_format) if isinstance(value, torch.Tensor) else value)
            own.append(flat[-1])
        else:
            held = program.state_dict if spec.target in program.state_dict else program.constants
            flat.append(_whole(held[spec.target].detach()))
    return flat, own


def _whole(tensor: Any) -> Any:
    """A tensor that has its memory to itself: a part of another is copied."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size() else tensor.clone()


def _require_pure(program: Any) -> None:
    changed = [spec.target or spec.arg.name for spec in program.graph_signature.output_specs if spec.kind is not OutputKind.USER_OUTPUT]
    if changed:
        raise Unsupported(_WHO, [Missing(f"changes of {name} in place", help="export it in eval mode") for name in changed])


def export(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *, targets: Targets = ("reference", "cpu")
) -> ExportedModel:
    """The model's forward pass for tensors like these, as Programs compiled for the targets, with its weights: `save` writes one file, which
    `vyre_py.interop.exported.ExportedModel.load` reads without PyTorch. Shapes are those of `args` and `kwargs`, tensors on the CPU; numbers among them are
    constants, and results are flat.

    Raises Unsupported, which names what the model needs that is PyTorch's own op, or changes in place; what `torch.export.export` and compiling raise.
    """
    names = [str(target) for target in parsed(targets)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's own code uses what it has deprecated
        program = torch.export.export(model, tuple(args), dict(kwargs or {}))
        program = program.run_decompositions({**torch.export.default_decompositions(), **_PRODUCTS})
    _require_pure(program)
    leaves = torch.utils._pytree.tree_leaves((tuple(args), dict(kwargs or {})))
    flat, own = _flat(program, leaves)
    for tensor in flat:
        if isinstance(tensor, torch.Tensor):
            require_cpu(tensor.device, _WHO)
    recorder, host = _Recorder(names), _HostOps()
    inputs = []
    for number, tensor in enumerate(each for each in own if isinstance(each, torch.Tensor)):
        name = recorder.hold(tensor, "its arguments", f"x{number}", tensor.numel())
        inputs.append(ModelInput(name, TYPES[tensor.dtype].name, tuple(tensor.shape)))
    with torch.no_grad():
        compiled = compile_graph(program.graph_module, flat, options=_OPTIONS)
        with watching(recorder.launched, arguments=True), host:
            results = compiled(*flat)
    if host.found:
        raise Unsupported(_WHO, [Missing(f"{op}, which is PyTorch's own op") for op in host.found])
    outputs = tuple(recorder.output(result) for result in results if isinstance(result, torch.Tensor))
    return ExportedModel(tuple(recorder.made), tuple(inputs), recorder.constants, tuple(recorder.steps), outputs)
