"""Code of our own in this process: LLVM IR, compiled and linked by LLVM's ORC JIT, once for as long as the process lives."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final

from vyre_py.ir.imports import importing
from vyre_py.lowering.errors import ToolchainError

__all__ = ["link"]

_lock = threading.Lock()
_linked: list[Any] = []  # the linker and what it has linked, which stay for good
_numbers: Final = count(1)  # of libraries: a child that is forked while one is linked takes another name for its own


def link(name: str, text: str, exports: Sequence[str], imports: Mapping[str, int] | None = None) -> dict[str, int]:
    """Compiles LLVM IR for this process; gives the addresses of its `exports`. `imports` are addresses of functions that it calls; those of the C library
    need none. Raises ToolchainError where llvmlite cannot be loaded."""
    try:
        with importing:
            from llvmlite import binding as llvm  # LLVM is loaded only when native code is first wanted
    except (ImportError, OSError) as error:  # not installed; installed, and its library does not load
        raise ToolchainError("llvmlite", f"cannot be loaded: {error}; pip install --force-reinstall llvmlite") from error

    with _lock:
        if not _linked:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            _linked.append(llvm.create_lljit_compiler())
        builder = llvm.JITLibraryBuilder().add_ir(_tidied(llvm, text)).add_current_process()
        for symbol, address in (imports or {}).items():
            builder.import_symbol(symbol, address)
        for symbol in exports:
            builder.export_symbol(symbol)
        library = builder.link(_linked[0], f"{name}-{next(_numbers)}")
        _linked.append(library)
        return {symbol: library[symbol] for symbol in exports}


def _tidied(llvm: Any, text: str) -> str:
    """The text with what says so put in its callers' place, and without what is superfluous: code is made of it in less time, too."""
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_default_triple().create_target_machine()
    passes = llvm.create_new_module_pass_manager()
    for add in (passes.add_always_inliner_pass, passes.add_sroa_pass, passes.add_simplify_cfg_pass):
        add()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return str(module)


def _forked() -> None:
    """In a forked child: a thread of the parent may have held the lock."""
    global _lock  # noqa: PLW0603 - the one lock of the process
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
