"""Programs that were exported as C, compiled by a C compiler, and loaded."""

from __future__ import annotations

import ctypes

import numpy as np
from compilers import compile_c

import vyre_py as vp
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target


def artifact_of(text, target="cpu", **options):
    return compile_for(parse(text), [parse_target(target)], CompileOptions(**options))


def fields_of(interface, pointer):
    """The struct that the header declares, by its rule: buffers with their shapes, params, dims that no axis gives."""
    given = {axis for memory in interface.buffers for axis in memory.shape}
    fields = []
    for number, memory in enumerate(interface.buffers):
        fields += [(f"buffer{number}", pointer), (f"shape{number}", ctypes.c_uint64 * max(1, memory.rank))]
    for number, param in enumerate(interface.params):
        element = np.ctypeslib.as_ctypes_type(param.type.dtype if param.type.dtype.kind in "iuf" and param.type.dtype.itemsize != 2 else
                                              {1: np.uint8, 2: np.uint16}[param.type.dtype.itemsize])
        fields.append((f"param{number}", element * param.type.lanes))
    fields += [(f"dim{number}", ctypes.c_uint64) for number, dim in enumerate(interface.dims) if dim not in given]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


class Exported:
    """A Program that was exported for the host, compiled and loaded."""

    def __init__(self, artifact, folder, **options):
        self.interface = artifact.interface
        header, source, objects = vp.export_c(artifact, folder, **options)
        self.name = source.stem
        self.header = header.read_text()
        built = compile_c(folder / f"{self.name}.so", [source, objects], "-shared", "-fPIC", "-pedantic", "-lm")
        self.run = ctypes.CDLL(str(built))[f"{self.name}_run"]
        self.struct = fields_of(self.interface, ctypes.c_void_p)

    def pack(self, **given):
        """The struct; what it holds is kept by it."""
        made, kept = self.struct(), []
        for number, memory in enumerate(self.interface.buffers):
            array = given[memory.name]
            kept.append(array)
            setattr(made, f"buffer{number}", array.ctypes.data)
            getattr(made, f"shape{number}")[: memory.rank] = array.shape[: memory.rank]
        for number, param in enumerate(self.interface.params):
            value = np.atleast_1d(np.asarray(given[param.name])).astype(param.type.dtype)
            ctypes.memmove(ctypes.addressof(getattr(made, f"param{number}")), value.tobytes(), value.nbytes)
        given_dims = {axis for memory in self.interface.buffers for axis in memory.shape}
        for number, dim in enumerate(self.interface.dims):
            if dim not in given_dims:
                setattr(made, f"dim{number}", given[dim.name])
        made.kept = kept
        return made

    def __call__(self, **given):
        """Runs over copies; gives the status, and what was written."""
        copies = {name: np.array(value) if isinstance(value, np.ndarray) and value.ndim else value for name, value in given.items()}
        status = self.run(ctypes.byref(self.pack(**copies)))
        return status, {m.name: copies[m.name] for m in self.interface.buffers if m.access.writes}
