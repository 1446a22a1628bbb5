"""Calls of a pipeline with any arguments: bound and launched at once, in native code where a device has that."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.binding import arguments_by_name, bind_arguments
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import Buffer, host_shape
from vyre_py.drivers.sharing.exchange import on_host
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.public import public
from vyre_py.ir.travel import Stationary
from vyre_py.lowering.errors import Missing, Unsupported

if TYPE_CHECKING:
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["CallEntry"]

# Float types that native code takes -> the greatest of the whole numbers that are exact, up to all of which they are.
_WHOLE: Final = {"f32": 1 << 24, "f64": 1 << 53}


@public
class CallEntry(Stationary):
    """A pipeline as a function, made by `pipeline.callable()`: `entry(x, y, a=2.0)` binds arguments of any shapes and launches, once.

    Arguments go as for `bind`, buffers before params in order of declaration, or by name, dims by name alone; `stream=` is an object with
    `__cuda_stream__`, where the Program has no such name. Buffers that are only written may be left out, or be None: they are made then, of the kind of
    the first array among the arguments (NumPy's, or another library's that has `from_dlpack`; a Buffer beside any other), and a call gives them, as a tuple if
    they are several; else it gives None.

    On the CPU and on CUDA Buffers and arrays of libraries with DLPack's exchange table (PyTorch) go to native code, which keeps the rules of `bind`, and on the
    CPU NumPy's arrays do. Whatever else there is, and all that breaks a rule, goes to `bind` itself, and `explain` says why. Any number of threads may call it.

    Of a Program that asserts or prints a call on the CPU shows the lines, and raises KernelAssertion, itself; elsewhere the next wait does, as for any launch.

    On CUDA a call over Buffers goes to the device's own stream. One over arrays of a library goes to the stream that the library works on now, in order with
    the library's own work, and does not wait; with `bind`, which orders streams with each other, it is done when it returns. A graph of the library's that has
    captured a call needs this object for as long as it is replayed.

    Attribute: `pipeline`.
    """

    travels_as = "send the pipeline, and ask it for callable() there"

    __slots__ = ("__weakref__", "_lacks", "pipeline")

    def __init__(self, pipeline: Pipeline, lacks: str = "") -> None:
        self.pipeline = pipeline
        self._lacks = lacks

    def __repr__(self) -> str:
        return f"<CallEntry of {self.pipeline!r}>"

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        """Runs the Program, as `pipeline.bind(arguments, **named)()`, and raises what that raises. Gives the outputs that were left out."""
        return self._slow(*arguments, **named)

    @property
    def c_address(self) -> int:
        """The address of the function as C sees it, a `vyre_callable_t` of `vyre.h`, for as long as this object lives.

        Raises Unsupported on devices and for Programs that have none: their launches need more than arguments.
        """
        of = f" of {self._lacks}" if self._lacks else ""
        raise Unsupported(self.pipeline.device.name, [Missing(f"callable().c_address{of}", help="bind has what it needs, and launch.c_address")])

    def explain(self, /, *arguments: Any, **named: Any) -> list[str]:
        """Why a call with these arguments goes through `bind`: a sentence each; none where native code takes it. Nothing runs. Raises BindingError for
        arguments that cannot be told apart."""
        return [f"calls of {self._lacks or f'the device {self.pipeline.device.name}'} have no native code"]

    def _learn(self, value: Any) -> bool:
        """Has native code take arguments such as this one from now on; gives whether that is new."""
        return False

    def _slow(self, /, *arguments: Any, **named: Any) -> Any:
        """A call that native code did not take: it is made again where that can be changed, and goes to `bind` else."""
        known = {sys.intern(str(name)): value for name, value in named.items()}  # native code knows names by identity
        if any(one is not other for one, other in zip(known, named, strict=True)):
            return self(*arguments, **known)
        interface = self.pipeline.artifact.interface
        given, problems = arguments_by_name(interface, arguments, named)
        if problems:
            raise BindingError(interface.name, problems)
        if self._made_plain(given):
            return self(**{sys.intern(str(name)): value for name, value in given.items()})
        stream = self._stream_of(given)
        if left_out := [memory for memory in interface.buffers if not memory.access.reads and given.get(memory.name) is None]:
            return self._with_outputs(given, left_out, stream)
        config = None if stream is None else DispatchConfig(stream=stream)  # without options plans that are known are used again
        launch = self.pipeline.bind(given, config=config)
        launch()
        if launch.plan.report is not None and on_host(self.pipeline.device):
            launch.plan.report.report.settle()  # over arrays that nobody waits for before looking into them
        return None

    def _stream_of(self, given: dict[str, Any]) -> Any:
        """Takes the stream out of the arguments, unless the Program has something of that name."""
        interface = self.pipeline.artifact.interface
        own = {thing.name for things in (interface.buffers, interface.params, interface.dims) for thing in things}
        return None if "stream" in own else given.pop("stream", None)

    def _made_plain(self, given: dict[str, Any]) -> bool:
        """Replaces NumPy's numbers of a param's own type, and whole numbers that a float holds, by what native code takes, which has the same bits, and learns
        about the others; gives whether anything changed."""
        interface, changed = self.pipeline.artifact.interface, False
        for param in interface.params:
            value = given.get(param.name)
            if isinstance(value, np.generic) and param.type.in_numpy and value.dtype == param.type.dtype and not np.isnan(value):  # a NaN has bits of its own
                given[param.name] = value.item()
                changed = True
            elif type(value) is int and abs(value) <= _WHOLE.get(param.type.name, -1):
                given[param.name] = float(value)
                changed = True
        for memory in interface.buffers:
            changed |= memory.name in given and self._learn(given[memory.name])
        return changed

    def _with_outputs(self, given: Mapping[str, Any], left_out: list[Memory], stream: Any) -> Any:
        """A call with new memory, all zeros, for the outputs that were left out; gives these."""
        device, interface = self.pipeline.device, self.pipeline.artifact.interface
        names = {memory.name for memory in left_out}
        stated = {name: value for name, value in given.items() if name not in names}
        shapes = bind_arguments(device, interface, stated, {}, staged=False, partial=True).shapes  # in the words of `bind`, which takes no copies of arrays
        beside = next((stated[memory.name] for memory in interface.buffers if memory.name in stated), None)
        made: dict[str, Any] = {}
        for memory in left_out:
            shape, type_ = shapes[memory.name], memory.type
            made[memory.name] = np.zeros(host_shape(shape, type_), type_.dtype) if isinstance(beside, np.ndarray) else device.allocate(shape, type_)
        named = stated | made | ({} if stream is None else {"stream": stream})
        self(**{sys.intern(str(name)): value for name, value in named.items()})
        outputs = tuple(_as_its_kind(made[memory.name], beside) for memory in left_out)
        return outputs[0] if len(outputs) == 1 else outputs


def _as_its_kind(output: Any, beside: Any) -> Any:
    """A Buffer as an array of the library that another argument is of, over the same memory; as it is where that is no library's with DLPack."""
    if not isinstance(output, Buffer) or isinstance(beside, Buffer) or not hasattr(beside, "__dlpack__"):
        return output
    names = getattr(beside, "__array_namespace__", None)
    if callable(names):
        libraries: list[Any] = [names()]
    else:
        libraries = [sys.modules.get(kind.__module__.partition(".")[0]) for kind in type(beside).__mro__]  # a user's class may be a kind of a library's
    library: Any = next((library for library in libraries if hasattr(library, "from_dlpack")), None)
    return output if library is None else library.from_dlpack(output)
