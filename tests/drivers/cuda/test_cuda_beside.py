"""A GPU beside other users of the driver in one process: their contexts stay current. And a driver that compiles no PTX."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from children import child_environment
from device_kinds import need_nvjitlink, open_device
from tree import ROOT


def ran(code: str, **environment: str) -> list[str]:
    """What code in a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300, cwd=ROOT, env=child_environment(**environment), check=False
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()


def test_every_call_leaves_another_context_current() -> None:
    """The second context of one GPU stands for that of another."""
    open_device("cuda")
    said = ran("""
        import gc
        import numpy as np
        import test_cuda_faults as table
        import inject
        import vyre_py as vp
        from vyre_py.ir.language.errors import VyreError

        inject.PTX = ".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry raw(.param .u64 y)\\n{\\n ret;\\n}\\n"
        device = vp.device("cuda")
        cuda, own = device.context.cuda, int(device.context.handle)
        made = table.World(device)
        streams = [device.stream() for _ in range(3)]
        inject.Stream = lambda *handle: streams[0]

        class Shared:
            def __init__(self, address, count):
                self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (made.y.address, False), "version": 3, "stream": None}

        inject.Shared = Shared
        try:
            status, other = cuda.cuCtxCreate(None, 0, device.context.device)  # bindings of CUDA 13
        except TypeError:
            status, other = cuda.cuCtxCreate(0, device.context.device)
        assert not status, status
        device.memory.keep_bytes = device.pinned_pool.keep_bytes = 0

        def current():
            return int(cuda.cuCtxGetCurrent()[1])

        for name, call in {**table.REFUSED, **table.ANSWERS}.items():
            cuda.cuCtxSetCurrent(other)
            try:
                given = call(made)
            except VyreError as error:
                given = None
            if current() != int(other):
                print("after", name, "another context is current")
            cuda.cuCtxSetCurrent(other)
            del given
            gc.collect()
            if current() != int(other):
                print("after what", name, "gave went another context is current")
        made.__dict__.clear()
        gc.collect()
        print("the end" if current() == int(other) else "after all went another context is current")
    """)
    assert said == ["the end"], "\n".join(said)


def test_without_the_drivers_compiler() -> None:
    open_device("cuda")
    need_nvjitlink()
    said = ran("""
        import numpy as np
        import vyre_py as vp
        from vyre_py.ir.text.parser import parse
        from vyre_py.lowering.errors import ToolchainError

        program = parse("program p(n) workgroup(64) over(n) {\\n buffer x: u32[n] read\\n buffer y: u32[n] write\\n y[global_id.x] = x[global_id.x] * 3\\n}")
        device = vp.device("cuda")
        print(device.loads_ptx, device.compile_native(program).dispatch(x=np.arange(5, dtype=np.uint32))["y"].tolist())
        x, y = device.upload(np.arange(5, dtype=np.uint32)), device.allocate(5, vp.u32)
        device.copy_strided(x, 4, (-1,), y, 0, (1,), (5,))
        print(y.read().tolist())
        try:
            device.load(vp.compile_native(program, "compute_75"))
        except ToolchainError as error:
            print("CUDA_ERROR_JIT_COMPILATION_DISABLED" in str(error))
    """, CUDA_DISABLE_PTX_JIT="1", VYRE_ASSEMBLER="nvjitlink", VYRE_CACHE_LIMIT="0")  # fmt: skip
    assert said == ["False [0, 3, 6, 9, 12]", "[4, 3, 2, 1, 0]", "True"], said
