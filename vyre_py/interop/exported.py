"""Models that were exported: compiled Programs, the order in which they run, and weights. They need nothing of the package that they come from.

    model = ExportedModel.load("model.npz")
    with model.on(vp.device("wgpu")) as run:
        y = run(x)

A file is NumPy's .npz, without pickles: `plan`, which is JSON, `artifact0` and so on, and `constant0` and so on.
"""

from __future__ import annotations

import json
import os
import threading
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.host_arrays import Host
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import is_size
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import SCALARS, Type, unsigned_of
from vyre_py.ir.public import Closing
from vyre_py.lowering.artifact.artifact import Artifact
from vyre_py.lowering.errors import ArtifactError

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device
    from vyre_py.drivers.pipeline import Pipeline

__all__ = ["BoundModel", "ExportedModel", "ModelInput", "ModelOutput", "ModelStep"]

_VERSION: Final = 1
# What NumPy, zipfile, zlib, json and the readers below raise for bytes that are not what they should be.
_MALFORMED: Final = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error)
_ERRORS: Final = {"IndexError": IndexError, "RuntimeError": RuntimeError}


@dataclass(frozen=True, slots=True)
class ModelInput:
    """An array that a call takes: the `value` that it is, its type, and its shape."""

    value: str
    type: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """An array that a call gives: elements of a `value`, from `offset` on, by `strides` in elements."""

    value: str
    type: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class ModelStep:
    """A launch: the number of its artifact, the `values` of its buffers and the `numbers` of its dims and params by name, and the `problems` that it may report
    in the value `report`, counted from 1, as pairs of an exception's name and a message."""

    artifact: int
    values: Mapping[str, str]
    numbers: Mapping[str, int]
    report: str = ""
    problems: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ExportedModel:
    """A model for arrays of fixed shapes. Inputs, constants and all that steps hand on are values, known by name: rows of elements. What a step updates that no
    step before has written begins as zeros."""

    artifacts: tuple[Artifact, ...]
    inputs: tuple[ModelInput, ...]
    constants: Mapping[str, Host]
    steps: tuple[ModelStep, ...]
    outputs: tuple[ModelOutput, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return self.artifacts[0].targets if self.artifacts else ()

    def on(self, device: Device) -> BoundModel:
        """The model on a device, its weights uploaded. Raises what loading artifacts and planning a chain raise."""
        return BoundModel(self, device)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file. Raises OSError."""
        types = {name: _type_of(array) for name, array in self.constants.items()}
        plan = {
            "version": _VERSION, "inputs": list(map(asdict, self.inputs)), "steps": list(map(asdict, self.steps)), "outputs": list(map(asdict, self.outputs)),
            "constants": [{"value": name, "type": type_.name} for name, type_ in types.items()], "artifacts": len(self.artifacts),
        }  # fmt: skip
        arrays = {"plan": np.frombuffer(json.dumps(plan).encode(), np.uint8)}
        arrays |= {f"artifact{number}": np.frombuffer(artifact.to_bytes(), np.uint8) for number, artifact in enumerate(self.artifacts)}
        arrays |= {f"constant{number}": _bits(self.constants[name], type_) for number, (name, type_) in enumerate(types.items())}
        with Path(path).open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ExportedModel:
        """The model in a file. Nothing of it is run; that its code is harmless cannot be seen: load only what you would run. Raises ArtifactError for a file
        that is none of these."""
        try:
            with Path(path).open("rb") as source, np.load(source, allow_pickle=False) as file:
                plan = json.loads(_bytes(file["plan"]))
                if plan["version"] != _VERSION:
                    raise ArtifactError("file", f"it has version {shown(plan['version'])}; {_VERSION} is read", str(path))
                return cls(
                    tuple(Artifact.from_bytes(_bytes(file[f"artifact{number}"])) for number in range(_size(plan["artifacts"]))),
                    tuple(ModelInput(_text(each["value"]), _type(each["type"]).name, _sizes(each["shape"])) for each in plan["inputs"]),
                    {_text(each["value"]): _array(file[f"constant{number}"], _type(each["type"])) for number, each in enumerate(plan["constants"])},
                    tuple(map(_step, plan["steps"])), tuple(map(_output, plan["outputs"])),
                )  # fmt: skip
        except _MALFORMED as error:
            raise ArtifactError("file", f"it is no exported model: {error}", str(path)) from error


class BoundModel(Closing):
    """A model on a device. Call it with arrays as its inputs say; a call waits for its results. One call runs at a time.

    Attributes: `model`, and `chain`, its launches, which may be part of other sequences; None for a model of none, all of whose results are views.
    """

    __slots__ = ("_lock", "chain", "model")

    def __init__(self, model: ExportedModel, device: Device) -> None:
        self.model = model
        self._lock = threading.Lock()
        pipelines = [device.load(artifact) for artifact in model.artifacts]
        inputs: dict[str, Any] = {port.value: (SCALARS[port.type], (prod(port.shape),)) for port in model.inputs}
        steps = []
        for step in model.steps:
            if not 0 <= step.artifact < len(pipelines):
                raise ArtifactError("file", f"a step is of artifact {step.artifact}, of {len(pipelines)}")
            steps.append((pipelines[step.artifact], {**step.values, **step.numbers}))
        reports = [step.report for step in model.steps if step.report]
        outputs = list(dict.fromkeys([*(port.value for port in model.outputs), *reports]))
        given = {**inputs, **model.constants}
        zeroed = _unwritten(model.steps, pipelines, given)
        self.chain = device.chain(steps, inputs=given, outputs=outputs, zeroed=zeroed) if steps else None

    def __call__(self, *arrays: Any) -> Any:
        """The results: an array, or a tuple of several. Raises BindingError for arrays that do not fit, and what the model itself found wrong: IndexError and
        RuntimeError."""
        ports = self.model.inputs
        given = [np.asarray(array) for array in arrays]
        problems = [f"{len(ports)} arrays are needed, got {len(given)}"] if len(ports) != len(given) else []
        problems += [
            f"input {number} needs {SCALARS[port.type].dtype}{list(port.shape)}, got {array.dtype}{list(array.shape)}"
            for number, (port, array) in enumerate(zip(ports, given, strict=False))
            if array.shape != port.shape or array.dtype != SCALARS[port.type].dtype
        ]
        if problems:
            raise BindingError("model", problems)
        with self._lock:
            rows = self._ran({port.value: array.reshape(-1) for port, array in zip(ports, given, strict=True)})
            results = tuple([_result(rows(port.value), port) for port in self.model.outputs])
        return results[0] if len(results) == 1 else results

    def _ran(self, given: Mapping[str, Host]) -> Callable[[str], Host]:
        """What gives values by name, once all steps have run."""
        chain = self.chain
        if chain is None:
            return {**self.model.constants, **given}.__getitem__
        for name, row in given.items():
            chain[name].write(row)
        chain()
        for step in self.model.steps:
            if step.report and (told := int(chain[step.report].read()[0])):
                name, message = step.problems[told - 1]
                raise _ERRORS.get(name, RuntimeError)(message)
        return lambda name: chain[name].read()

    def close(self) -> None:
        """Gives the memory back."""
        if self.chain is not None:
            self.chain.free()


def _unwritten(steps: Sequence[ModelStep], pipelines: Sequence[Pipeline], given: Collection[str]) -> list[str]:
    """The values that a step updates before any has written them."""
    known, found = set(given), list[str]()
    for step in steps:
        for memory in pipelines[step.artifact].artifact.interface.buffers:
            name = step.values.get(memory.name, "")
            if memory.access.reads and memory.access.writes and name not in known:
                found.append(name)
            known.add(name)
    return found


def _result(flat: Host, port: ModelOutput) -> Host:
    reach = port.offset + sum((size - 1) * stride for size, stride in zip(port.shape, port.strides, strict=True))
    if prod(port.shape) and reach >= len(flat):
        raise ArtifactError("file", f"an output reaches element {reach} of {len(flat)}")
    strides = [stride * flat.itemsize for stride in port.strides]
    return np.lib.stride_tricks.as_strided(flat[port.offset :], port.shape, strides).copy()


# ---------------------------------------------------------------- the file


def _type_of(array: Host) -> Type:
    return next(type_ for type_ in SCALARS.values() if type_.dtype == array.dtype)


def _bits(array: Host, type_: Type) -> Host:
    """What NumPy's files hold: of a type that NumPy has not, its bits."""
    return array if type_.in_numpy else array.view(unsigned_of(type_).dtype)


def _array(bits: Host, type_: Type) -> Host:
    array = bits if type_.in_numpy else bits.view(type_.dtype)
    if array.dtype != type_.dtype or array.ndim != 1:
        raise ValueError(f"a constant of {type_} is {bits.dtype}{list(bits.shape)}")
    return array


def _bytes(array: Host) -> bytes:
    if array.dtype != np.uint8 or array.ndim != 1:
        raise ValueError(f"bytes are needed, got {array.dtype}{list(array.shape)}")
    return array.tobytes()


def _size(value: Any) -> int:
    if not is_size(value):
        raise ValueError(f"a size is needed, got {shown(value)}")
    return int(value)


def _sizes(values: Any) -> tuple[int, ...]:
    return tuple(map(_size, values))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is needed, got {shown(value)}")
    return value


def _type(value: Any) -> Type:
    return SCALARS[_text(value)]


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"a whole number is needed, got {shown(value)}")
    return value


def _step(each: Any) -> ModelStep:
    values = {_text(name): _text(value) for name, value in each["values"].items()}
    numbers = {_text(name): _number(value) for name, value in each["numbers"].items()}
    problems = tuple((_text(name), _text(message)) for name, message in each["problems"])
    return ModelStep(_size(each["artifact"]), values, numbers, _text(each["report"]), problems)


def _output(each: Any) -> ModelOutput:
    shape, strides = _sizes(each["shape"]), _sizes(each["strides"])
    if len(shape) != len(strides):
        raise ValueError("an output has strides for other axes")
    return ModelOutput(_text(each["value"]), _type(each["type"]).name, shape, strides, _size(each["offset"]))
