"""One call of a Program as JAX traces it: the custom call, and what `vmap` makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.custom_batching import custom_vmap
from jax.sharding import NamedSharding, PartitionSpec

from vyre_py.interop.jax.abstract_binding import Bound, components
from vyre_py.interop.jax.xla_target import target_of

if TYPE_CHECKING:
    from vyre_py.interop.jax.function import JaxFunction

__all__ = ["TracedCall"]


def _alike(arrays: Sequence[Any]) -> list[Any]:
    """The arrays, which all count as different on the devices of a mesh, within `jax.shard_map`, where any does."""
    varied = [jax.typeof(array).manual_axis_type.varying for array in arrays]
    axes = frozenset[Any]().union(*varied)
    return [jax.lax.pcast(array, tuple(axes - own), to="varying") if axes - own else array for array, own in zip(arrays, varied, strict=True)]


def _place(operands: Sequence[Any]) -> dict[str, Any]:
    """Where results are: on the devices of a mesh, each with its own, where operands are; else wherever JAX likes."""
    aval = jax.typeof(operands[0]) if operands else None
    if aval is None or not aval.manual_axis_type.varying:
        return {}
    return {"manual_axis_type": aval.manual_axis_type, "sharding": NamedSharding(aval.sharding.mesh, PartitionSpec())}


class TracedCall:
    """A bound call of a function. `run` takes its arrays, in the order of `bound.names`."""

    def __init__(self, function: JaxFunction, bound: Bound) -> None:
        self.function, self.bound = function, bound
        self.run = custom_vmap(self._enqueue)
        self.run.def_vmap(self._batch)

    def _enqueue(self, *arrays: Any) -> tuple[Any, ...]:
        """The results of the custom call. A buffer that is only written, and perhaps not all of it, begins as zeros."""
        form, shapes = self.bound.form, self.bound.binding.shapes
        given = dict(zip(self.bound.names, arrays, strict=True))
        operands, results, aliases = list[Any](), list[tuple[Any, Any]](), dict[int, int]()
        for memory in self.bound.binding.interface.buffers:
            pair = memory.name in form.pairs
            shape = (*shapes[memory.name], *(() if pair else components(memory.type)))
            dtype = np.result_type(memory.type.dtype, np.complex64) if pair else memory.type.dtype
            if memory.name not in form.fresh:
                if memory.access.writes:
                    aliases[len(operands)] = len(results)
                operands.append(given[memory.name] if memory.name in given else jnp.zeros(shape, dtype))
            if memory.access.writes:
                results.append((shape, dtype))
        operands = _alike([*operands, *[given[name] for name in form.traced]])
        avals = [jax.ShapeDtypeStruct(shape, dtype, **_place(operands)) for shape, dtype in results]
        target = target_of(self.function.pipeline, form)
        return tuple(jax.ffi.ffi_call(target, avals, input_output_aliases=aliases, vmap_method="sequential")(*operands, words=self.bound.words()))

    def _batch(self, size: int, in_batched: Sequence[bool], *arrays: Any) -> tuple[Any, Any]:
        """`vmap`: a call of the Program that has an axis more, or where there is none one call after another."""
        names, written = self.bound.names, [m.name for m in self.bound.binding.interface.buffers if m.access.writes]
        moved = {name for name, some in zip(names, in_batched, strict=True) if some}
        wider = self.function.batched(frozenset(moved) | frozenset(written))
        if wider is None:
            results = self._one_by_one(in_batched, arrays)
        else:
            given = dict(zip(names, arrays, strict=True))
            whole = {name: jnp.broadcast_to(given[name], (size, *given[name].shape)) for name in written if name in given and name not in moved}
            results = wider.results({**self.bound.known, **given, **whole})
        return results, (True,) * len(written)

    def _one_by_one(self, in_batched: Sequence[bool], arrays: Sequence[Any]) -> Any:
        def one(moved: Sequence[Any]) -> Any:
            moving = iter(moved)
            return self.run(*[next(moving) if some else array for some, array in zip(in_batched, arrays, strict=True)])

        return jax.lax.map(one, [array for some, array in zip(in_batched, arrays, strict=True) if some])
