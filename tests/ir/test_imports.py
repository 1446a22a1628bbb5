"""Imports that are made in calls: a child that is forked while another thread is within one makes the same call.

This module is also the program that such a process runs: `python test_imports.py FOLDER`.
"""

from __future__ import annotations

import ast
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import child_environment
from tree import ROOT

import vyre_py as vp
from vyre_py.ir import imports
from vyre_py.ir.imports import deferred, hold_imports, importing, made_once, release_imports

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

PATIENCE_S = 20
PAUSE_S = 0.2
XS = np.ones(3, np.float32)
TEXT = """program double(n) {
  buffer x: f32[n] read
  buffer y: f32[n] write
  let i = global_id.x
  y[i] = x[i] * 2.0
}"""


def program() -> Any:
    return vp.Program.from_text(TEXT)


def built() -> None:
    with vp.ProgramBuilder("p") as b:
        b.write("y", vp.f32, 4)[b.global_id(0)] = 1.0
    b.program._repr_html_()


def refused() -> None:
    with pytest.raises(vp.ParseError) as caught:
        vp.Program.from_text("program p {")
    caught.value._repr_html_()


def launched() -> None:
    device = vp.device("cpu")
    x = device.upload(XS)
    launch = device.compile_native(program()).bind({"x": x, "y": device.upload(XS)})
    device.sequence(launch, vp.fill_step(x, 1.0))()
    device.capture(launch)._repr_html_()
    assert launch.c_address and x.__dlpack__()


def saved() -> None:
    path = Path(sys.argv[1]) / f"{os.getpid()}.vyre"
    vp.compile_native(program(), targets=["cpu"]).save(path)
    str(vp.Artifact.load(path))


CALLS: dict[str, Callable[[], object]] = {
    "text": program,
    "print": lambda: str(program()),
    "bytes": lambda: vp.Program.from_bytes(program().to_bytes()),
    "json": lambda: vp.Program.from_json(program().to_json()),
    "digest": lambda: hash(program()),
    "build": built,
    "refuse": refused,
    "reference": lambda: vp.device("reference").compile_native(program()).dispatch({"x": XS}),
    "cpu": lambda: vp.device("cpu").compile_native(program()).dispatch({"x": XS}),
    "launch": launched,
    "save": saved,
    "bf16": lambda: vp.bf16.dtype,
    "wgsl": lambda: vp.compile_native(program(), targets=["wgsl"]),
    "ptx": lambda: vp.compile_native(program(), targets=["compute_90"]),
    "fast": lambda: vp.compile_native(program(), targets=["compute_90"], options=vp.CompileOptions(numerics="fast")),
    "machine code": lambda: vp.compile_native(program(), targets=["sm_90"]),
    "libNVVM": lambda: vp.compile_native(program(), targets=["compute_90"], options=vp.CompileOptions(codegen="nvvm")),
    "Sobol": lambda: vp.Sobol(vp.device("cpu"), 3),
}


class Forks:
    """Makes every call in a thread, which halts where an import begins until this thread has forked a child, or waits to."""

    def __init__(self) -> None:
        self.within, self.forked = threading.Event(), threading.Event()
        self.call, self.module = "", ""
        self.over = False
        self.thread = threading.Thread(target=self.make)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Asked for each module that is not there yet, while Python's lock on it is held."""
        if threading.current_thread() is self.thread:
            frame, depth = sys._getframe(1), 0
            while frame.f_back is not None:
                depth += frame.f_code.co_name == "_find_and_load"
                frame = frame.f_back
            if depth == 1:  # not one that a module imports in turn
                self.module = name
                self.forked.clear()
                self.within.set()
                self.forked.wait(PAUSE_S)

    def make(self) -> None:
        try:
            for name, call in CALLS.items():
                self.call = name
                with suppress(vp.VyreError):  # of what is not installed here
                    call()
            self.call = ""
        finally:
            self.over = True
            self.within.set()

    def run(self) -> None:
        sys.meta_path.insert(0, self)
        self.thread.start()
        children: dict[int, str] = {}
        while self.within.wait() and not self.over:
            self.within.clear()
            call, module = self.call, self.module
            child = os.fork()
            if child == 0:
                faulthandler.register(signal.SIGALRM, chain=True)  # says where a child hangs, and ends it
                signal.alarm(PATIENCE_S)
                status = 1
                try:
                    with suppress(vp.VyreError):
                        CALLS[call]()
                    status = 0
                finally:
                    os._exit(status)
            children[child] = f"{call}: {module}"
            self.forked.set()
        self.thread.join()
        assert not self.call, f"{self.call} failed"
        for child, what in children.items():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), what)


def test_children_forked_within_imports_make_the_same_calls(tmp_path: Path) -> None:
    environment = {**child_environment(), "VYRE_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    assert len(lines) >= 15 and {line.partition(" ")[0] for line in lines} == {"0"}, done.stdout + done.stderr[-8000:]


def test_no_module_takes_the_lock_while_it_is_imported() -> None:
    """Who imports a module holds Python's lock on it, and who holds ours may wait for that."""
    text = (
        "import sys\nfrom importlib import import_module\nimport vyre_py.ir.imports as imports\n"
        "class Taken:\n    def __enter__(self): sys.exit('taken')\n    def __exit__(self, *_): pass\n"
        "imports.importing = Taken()\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n        import_module(name)\n"
        "    except ImportError as error:\n        assert not error.name.startswith('vyre_py'), error\n"
    )
    folders = {"ir": "vyre_py.ir", "lowering": "vyre_py.lowering", "drivers": "vyre_py.drivers", "vyre_py": "vyre_py"}
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    names = [".".join((folders[parts[0]], *parts[1:])) for path in paths if (parts := path.relative_to(ROOT).with_suffix("").parts)]
    assert len(names) > 200
    subprocess.run([sys.executable, "-c", text, *names], cwd=ROOT, env=child_environment(), check=True, timeout=120)


def test_a_fork_that_waits_in_vain_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library's own hook may hold what the import waits for."""
    monkeypatch.setattr(imports, "_PATIENCE_S", 0.01)
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with importing:
            taken.set()
            over.wait(PATIENCE_S)

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(PATIENCE_S)
    hold_imports()
    release_imports()
    release_imports()  # a hook that was registered while a fork waited, so that nothing came before it
    over.set()
    holder.join()
    hold_imports()
    assert importing._is_owned()  # type: ignore[attr-defined]  # of the lock that C makes, which has no stub
    release_imports()
    assert not importing._is_owned()  # type: ignore[attr-defined]  # as above


@pytest.mark.parametrize("held", [False, True], ids=["called", "held before"])
def test_a_deferred_module_is_imported_by_the_first_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bool) -> None:
    (tmp_path / "deferred_one.py").write_text("def double(x): return 2 * x\nclass Pair:\n    def __init__(self, a, b=1): self.sum = a + b\n", encoding="ascii")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = types.ModuleType("deferred_package")
    module.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "deferred_package", module)
    one, other = deferred("deferred_package", "deferred_one", "deferred_two")
    double = one.double if held else None
    assert "deferred_package.deferred_one" not in sys.modules
    assert (double or one.double)(4) == 8
    assert sys.modules["deferred_package.deferred_one"].double is one.double
    assert one.Pair(2, b=3).sum == 5
    with pytest.raises(AttributeError, match="triple"):
        one.triple(1)
    with pytest.raises(ModuleNotFoundError, match="deferred_two"):
        other.double(1)
    assert not hasattr(one, "__wrapped__"), "what Python asks of any object is no function of the module"
    del sys.modules["deferred_package.deferred_one"]


def test_what_is_made_once() -> None:
    asked = []

    def scaled(by: int, *, more: int) -> Callable[[int], int]:
        asked.append(by)
        return lambda x: x * by + more

    made = made_once(scaled, 3, more=1)
    assert not asked
    assert [made(k) for k in range(3)] == [1, 4, 7]
    assert asked == [3]


def test_every_deferred_name_is_there() -> None:
    """What stands for modules has what is asked of it, and that can be called."""
    seen = 0
    for path in (path for folder in ("ir", "lowering", "drivers", "vyre_py") for path in (ROOT / folder).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
        stand_ins: dict[str, str] = {}
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "deferred":
                package, *modules = [ast.literal_eval(argument) for argument in node.value.args]
                (target,) = node.targets
                assert isinstance(target, ast.Tuple)
                stand_ins |= {ast.unparse(name): f"{package}.{module}" for name, module in zip(target.elts, modules, strict=True)}
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in stand_ins:
                seen += 1
                assert callable(getattr(import_module(stand_ins[node.value.id]), node.attr)), f"{path}:{node.lineno}"
    assert seen > 100


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 says that forks beside threads are unwise, which is what is looked at
    Forks().run()
