"""Launches in code that Numba compiles: `vyre_launch`, for functions under `@numba.njit`.

    from vyre_py.interop.numba import vyre_launch

    @numba.njit(nogil=True)
    def steps(launch, count):
        for _ in range(count):
            status = vyre_launch(launch, 0)
            if status != 0:
                return status
        return 0

    steps(launch.c_address, 100)

It is `vyre_launch` of `include/vyre.h`: a load of the descriptor's `run` and a call of it, without Python and without its lock. The launch must be there
meanwhile, which an address does not see to: keep it in a variable. Numba's own arrays need no copy: `device.wrap(array)` is a buffer over a NumPy array on
the CPU device, and over a Numba device array on a CUDA one; `bind` takes the latter as it is.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from vyre_py.drivers.sharing.c_launch import CLaunchWords

__all__ = ["vyre_launch"]

_RUN_AT: Final[int] = CLaunchWords.run.offset
_POINTER: Final = ir.IntType(8).as_pointer()


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    launch, stream = [context.cast(builder, value, its, types.uintp) for value, its in zip(arguments, signature.args, strict=True)]
    run = ir.FunctionType(ir.IntType(32), [_POINTER, _POINTER]).as_pointer()
    place = builder.inttoptr(builder.add(launch, launch.type(_RUN_AT)), run.as_pointer())
    return builder.call(builder.load(place), [builder.inttoptr(launch, _POINTER), builder.inttoptr(stream, _POINTER)])


@intrinsic  # type: ignore[untyped-decorator]  # Numba has no types of its own
def vyre_launch(typing_context: Any, launch: Any, stream: Any) -> Any:
    """`vyre_launch(launch, stream)` under `@njit`: runs the launch whose `c_address` is given, and gives its status, 0 when it went well (`vyre.h` lists the
    others). `stream` is a CUstream as an integer, or 0 for the launch's own; on the CPU it is 0. Other types than integers are a typing error."""
    if not (isinstance(launch, types.Integer) and isinstance(stream, types.Integer)):
        return None
    return types.int32(launch, stream), _generate
