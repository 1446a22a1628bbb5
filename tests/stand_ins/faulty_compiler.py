"""A worker process for tests: `python faulty_compiler.py FD FOLDER` compiles as others do, but for Programs of certain names it does something else first.

FOLDER is one where workers can see each other, by files.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import llvmlite.binding as llvm
import numpy as np

from vyre_py.drivers.process import worker
from vyre_py.drivers.process.worker import Answer, Request, Worker
from vyre_py.ir.language.program import Program

PATIENCE: Final = 60.0
FOLDER: Final = Path(sys.argv[2])


def llvm_crash(function: str) -> None:
    """Compiles what LLVM has no code for: of sin it says so and aborts, of exp it says so and calls exit(1)."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu="sm_90")
    text = f"""
        target triple = "nvptx64-nvidia-cuda"
        declare double @llvm.{function}.f64(double)
        define double @f(double %x) {{
          %y = call double @llvm.{function}.f64(double %x)
          ret double %y
        }}
    """
    machine.emit_assembly(llvm.parse_assembly(text))


def meet() -> None:
    """Waits until another worker is here as well."""
    (FOLDER / f"here.{os.getpid()}").touch()
    end = time.monotonic() + PATIENCE
    while len(list(FOLDER.glob("here.*"))) < 2:
        if time.monotonic() > end:
            raise TimeoutError("no other worker came")
        time.sleep(0.005)


def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> None:
    (FOLDER / f"hangs.{os.getpid()}").touch()
    time.sleep(1000)


def fail() -> None:
    raise ZeroDivisionError("a defect")


def killed(times: int) -> None:
    """As the system does where memory runs out, so many times."""
    if len(list(FOLDER.glob("killed.*"))) < times:
        (FOLDER / f"killed.{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)


# Name of a Program -> what is done over it.
FAULTS: Final[dict[str, Callable[[], None]]] = {
    "aborts": lambda: llvm_crash("sin"), "exits": lambda: llvm_crash("exp"), "segfaults": segfault, "hangs": hang, "meets": meet, "fails": fail,
    "killed twice": lambda: killed(2), "killed always": lambda: killed(1000),
    "speaks": lambda: print("a warning\x1b[2J of a compiler", file=sys.stderr, flush=True),
}  # fmt: skip


def compile_artifact(self: Worker, request: Request) -> Answer:
    program = Program.from_bytes(self._bytes(request).tobytes())
    if program.name == "lies":
        self.memory.array(0, (64,), np.dtype(np.uint8))[:] = 0
        return {"size_bytes": 64}
    if program.name == "exaggerates":
        return {"size_bytes": 1 << 31}
    FAULTS.get(program.name, lambda: None)()
    return Worker.compile_artifact(self, request)


if __name__ == "__main__":
    for left in FOLDER.glob("death.*"):
        left.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    worker.REQUESTS = {**worker.REQUESTS, "compile_artifact": compile_artifact}  # type: ignore[misc]  # final for all but tests
    worker.main()
