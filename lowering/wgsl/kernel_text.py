"""Modules: the text of kernels that share their declarations and functions."""

from __future__ import annotations

from collections.abc import Sequence

from vyre_py.ir.data_classes import dataclass
from vyre_py.lowering.layout import Layout
from vyre_py.lowering.target import Target
from vyre_py.lowering.wgsl.helpers import HELPERS, OF_HALVES, with_requirements
from vyre_py.lowering.wgsl.uniform_block import block_words

__all__ = ["KernelText", "module_text"]


@dataclass(frozen=True, slots=True)
class KernelText:
    """One kernel: what its module declares for it, the names of helpers (`lowering.wgsl.helpers`) and the texts of functions that it calls, itself, and whether
    there are arrays of f16."""

    declared: tuple[str, ...]
    helpers: frozenset[str]
    functions: tuple[str, ...]
    text: str
    halves: bool


def module_text(kernels: Sequence[KernelText], layout: Layout, target: Target) -> str:
    """The module of kernels over the same arguments, each an entry point."""
    first = kernels[0]
    assert all((kernel.declared, kernel.functions) == (first.declared, first.functions) for kernel in kernels)
    known = {**HELPERS, **OF_HALVES} if target.has("f16") else HELPERS
    parts = [
        *["enable f16;"] * first.halves,
        f"struct Block {{\n  words: array<vec4<u32>, {block_words(layout) // 4}>,\n}}",
        "\n".join(["@group(0) @binding(0) var<uniform> block: Block;", *first.declared]),
        *[known[name] for name in with_requirements(frozenset[str]().union(*[kernel.helpers for kernel in kernels]))],
        *first.functions,
    ]
    return "\n\n".join([*parts, *[kernel.text for kernel in kernels]])
