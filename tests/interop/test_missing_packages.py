"""Doors to libraries that are not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from children import child_environment
from device_kinds import need_package


@pytest.mark.parametrize(("door", "package", "extra"), [
    ("jax", "jax", "jax"), ("torch", "torch", "torch"), ("torch.backend", "torch", "torch"), ("tvm_ffi", "tvm_ffi", "tvm-ffi"), ("dask", "dask", "dask"),
    ("dask", "distributed", "dask"),
])  # fmt: skip
def test_a_door_without_its_package_names_the_extra(door: str, package: str, extra: str) -> None:
    if door == "dask" and package != "dask":
        need_package("dask", "dask")
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"try: import vyre_py.interop.{door}\n"
        "except ModuleNotFoundError as error: print(error, error.name.partition('.')[0], sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], env=child_environment(), capture_output=True, text=True, check=True)
    name = f"vyre_py.interop.{door.partition('.')[0]}"
    wanted = f"{name} needs the package {package}, which is not installed: pip install '.[{extra}]' in a checkout of vyre-py"
    assert done.stdout == f"{wanted}\n{package}\n", done.stderr
