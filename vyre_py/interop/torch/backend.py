"""`torch.compile(model, backend="vyre")`: AOTAutograd and Inductor compile the graph, and its loops become Programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch._inductor import config, list_mode_options
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.virtualized import V

from vyre_py.interop.torch.fallbacks import lowered_for_us
from vyre_py.interop.torch.scheduling import backend_name, register
from vyre_py.interop.torch.splitting import SplittingChoices
from vyre_py.interop.torch.tensors import require_device
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["compile_graph"]

# What Inductor is told beside the user's own options.
_OPTIONS: Final[Mapping[str, Any]] = {
    "max_autotune_gemm_backends": "ATEN",  # templates of products are C++
    "max_autotune_conv_backends": "ATEN",
}
_LACKING: Final[Mapping[str, str]] = {  # options of Inductor's -> what to do instead
    "cpp_wrapper": "leave it out: kernels are called from Python",
    "fx_wrapper": "leave it out: kernels are called from Python",
    "nan_asserts": "torch._assert_async(x.isfinite().all(), message) in the model finds them",
}
_OPERATORS: Final[Mapping[str, tuple[str, str]]] = {  # higher operators of a graph's -> what they are, and what to do instead
    "flex_attention": ("FlexAttention", "torch.nn.functional.scaled_dot_product_attention, with a mask, is there; so is flex_attention by backend='inductor'"),
}


def _compile_inner(graph: Any, inputs: Sequence[Any], **kwargs: Any) -> Any:
    for value in inputs:
        if isinstance(value, torch.Tensor):
            require_device(value.device, "the backend vyre")
    with lowered_for_us(), V.set_choices_handler(SplittingChoices()):
        return compile_fx_inner(graph, inputs, **kwargs)


def compile_graph(graph: Any, inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None) -> Any:
    """The backend that PyTorch knows as "vyre". `options` are Inductor's.

    Raises Unsupported for tensors that are neither on the CPU nor on CUDA, and for options and operators that ask for what is not there.
    """
    register()
    _require_operators(graph)
    with lowered_for_us():
        return _compiled(graph, inputs, mode, options)


def _require_operators(graph: Any) -> None:
    """Raises Unsupported where a graph, or one within it, calls an operator whose loops Inductor has as templates only."""
    graphs = [module.graph for module in graph.modules() if isinstance(module, torch.fx.GraphModule)]
    names = {getattr(node.target, "__name__", "") for each in graphs for node in each.nodes if isinstance(node.target, torch._ops.HigherOrderOperator)}
    if lacking := [_OPERATORS[name] for name in sorted(names & set(_OPERATORS))]:
        raise Unsupported("the backend vyre", [Missing(what, help=help_) for what, help_ in lacking])


def _compiled(graph: Any, inputs: Sequence[Any], mode: str | None, options: Mapping[str, Any] | None) -> Any:
    chosen = {**(list_mode_options(mode) if mode else {}), **(options or {}), **_OPTIONS, "cpu_backend": backend_name(), "cuda_backend": backend_name()}
    if asked := [name for name in _LACKING if chosen.get(name, getattr(config, name, False))]:
        raise Unsupported("the backend vyre", [Missing(f"the option {name}", help=_LACKING[name]) for name in asked])
    return compile_fx(graph, inputs, inner_compile=_compile_inner, config_patches=chosen)
