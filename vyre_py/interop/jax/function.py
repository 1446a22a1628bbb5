"""A Program as a function of JAX's arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import jax

from vyre_py.interop.hidden_device import host_device
from vyre_py.interop.jax.abstract_binding import as_array, bind
from vyre_py.interop.jax.traced_call import TracedCall
from vyre_py.ir.language.grids import writes_whole
from vyre_py.ir.passes.batch import batched
from vyre_py.ir.text.lexer import written_name
from vyre_py.lowering.errors import Missing, Unsupported

if TYPE_CHECKING:
    from vyre_py.ir.language.program import Program
    from vyre_py.lowering.options import CompileOptions

__all__ = ["JaxFunction", "vyre_call"]


def vyre_call(program: Program, options: CompileOptions | None = None) -> JaxFunction:
    """The Program as a function of JAX's arrays, compiled for the CPU, and with the first call for JAX's GPUs, if it has some.

    Raises what compiling raises; Unsupported by name for a Program whose launches need more than arguments (scans over the grid, asserts, prints, code that can
    be ended), and for one that writes nothing."""
    return JaxFunction(program, options)


class JaxFunction:
    """A Program as a function of JAX's arrays, made by `vyre_call`: `axpy(x, y, 2.0)`, under `jax.jit` or by itself.

    Arguments are the buffers that the Program reads and then its params, in order of declaration, or any by name; dims go by name, as whole numbers, and only
    where they are the size of no axis. A param is a number, which then belongs to the compiled code, or an array of rank 0 (of its components, for a vector).
    A number that JAX traces, and that came without a type, becomes one of the param's type as JAX converts: -1 is 255 of u8, and nobody can refuse it.
    Vectors are arrays with one axis more, the last; vectors of two floats may be complex numbers. The result is what the Program writes: an array, or a
    tuple of them in order of declaration. A `read_write` buffer is an argument and a result; what a call does not write of the others is zero.

    `jax.vmap` makes one call with an axis more where the Program uses one workgroup along z, and else one call after another. Raises BindingError where JAX
    traces the call, with every mismatch of name, dtype, rank and size; Unsupported for sizes that are not known then.

    Attributes: `program`, and the `pipeline` that runs it.
    """

    def __init__(self, program: Program, options: CompileOptions | None = None) -> None:
        self.program, self._options = program, options
        self.pipeline = host_device().compile_native(program, options)
        _ = self.pipeline.callable().c_address  # raises what native calls do not take
        buffers = self.pipeline.artifact.interface.buffers
        if not any(memory.access.writes for memory in buffers):
            raise Unsupported("vyre_call", [Missing(f"a Program that writes nothing, as {program.name!r}", help="declare what it computes as written")])
        self._reads = tuple([memory.name for memory in buffers if memory.access.reads])
        self._fresh = tuple([memory.name for memory in program.buffers if not memory.access.reads and writes_whole(program, memory)])
        self._batched: dict[frozenset[str], JaxFunction | None] = {}
        self._derivative: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def __repr__(self) -> str:
        return f"<vyre_call of {self.program.name!r}>"

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        """The results: see the class."""
        interface = self.pipeline.artifact.interface
        names = [*self._reads, *[param.name for param in interface.params]]
        problems = [f"{name!r} is given twice" for name in names[: len(arguments)] if name in named]
        if len(arguments) > len(names):
            problems.append(f"{len(arguments)} arguments for {len(names)} slots ({', '.join(map(written_name, names))})")
        given = {**dict(zip(names, arguments, strict=False)), **named}
        results = [memory.name for memory in interface.buffers if not memory.access.reads and memory.name in given]
        problems += [f"{name!r} is only written: a result, not an argument" for name in results]
        found = self.results({name: value for name, value in given.items() if name not in results}, problems)
        return found[0] if len(found) == 1 else found

    def results(self, given: Mapping[str, Any], problems: Sequence[str] = ()) -> tuple[Any, ...]:
        """What a call with arguments by name gives, always a tuple. Raises BindingError, with the problems that there are already."""
        if self._derivative is not None:
            params = [param for param in self.pipeline.artifact.interface.params if param.name in given]
            given = {**given, **{p.name: as_array(p, given[p.name]) for p in params if not isinstance(given[p.name], jax.Array)}}
        bound, arrays = bind(self.pipeline, self._fresh, given, list(problems))
        run = jax.custom_vjp(TracedCall(self, bound).run)
        if self._derivative is None:
            run.defvjp(self._has_none, self._has_none)
        else:
            run.defvjp(*self._rules(bound.known))
        found: tuple[Any, ...] = run(*arrays)
        return found

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Says how to differentiate, as `defvjp` of `jax.custom_vjp`: `forward(*arguments)` gives the result, and what `backward(that, cotangent)` needs to
        give a cotangent, or None, for each argument. Arguments are all buffers that are read and all params, as arrays; dims go to `forward`, by name."""
        self._derivative = forward, backward

    def _rules(self, dims: Mapping[str, Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The two functions of the derivative, over results that are always a tuple."""
        assert self._derivative is not None  # asked for where there is one
        forward, backward = self._derivative
        single = sum(memory.access.writes for memory in self.pipeline.artifact.interface.buffers) == 1

        def onward(*arrays: Any) -> tuple[Any, Any]:
            result, saved = forward(*arrays, **dims)
            return (result,) if single else tuple(result), saved

        return onward, lambda saved, cotangents: backward(saved, cotangents[0] if single else cotangents)

    def _has_none(self, *_: Any) -> NoReturn:
        help_ = "function.defvjp(forward, backward) says them, as jax.custom_vjp has it"
        raise Unsupported("vyre_call", [Missing(f"derivatives of {self.program.name!r}, which has none", help=help_)])

    def batched(self, names: frozenset[str]) -> JaxFunction | None:
        """The function whose arguments of these names have an axis more, made once; None where the Program does not allow it."""
        if names not in self._batched:
            wider = batched(self.program, names)
            self._batched[names] = None if wider is None else JaxFunction(wider, self._options)
        return self._batched[names]
