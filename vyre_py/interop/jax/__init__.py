"""Programs inside code that JAX compiles: `vyre_call`, for functions under `jax.jit`.

    from vyre_py.interop.jax import vyre_call

    axpy = vyre_call(program)  # compiled for the CPU, and for GPUs where JAX has some, once

    @jax.jit
    def f(x, y):
        return jnp.sum(axpy(jnp.sin(x), y, 2.0))

Arguments are the buffers that the Program reads, and then its params, in order of declaration, or any by name; results are the buffers that it writes. A
`read_write` buffer is both, and its result takes over the argument's memory where XLA needs that no more. XLA calls native code
(`lowering/llvm/adapters/xla_ffi.py`), which hands addresses and sizes to the pipeline's native entry; a large grid is shared among XLA's
threads. On CUDA the call is one launch on XLA's own stream, which XLA may capture. There is no Python in a call.
"""

from __future__ import annotations

from vyre_py.ir.extras import with_extra

with with_extra("jax", __name__):
    from vyre_py.interop.jax.function import JaxFunction, vyre_call

__all__ = ["JaxFunction", "vyre_call"]
