"""Which subgroups the built-ins of an adapter's devices see: how many lanes, and whether those are neighbours by `local_index`.

WebGPU leaves both to the device, and the size even to each pipeline. So built-ins are of use where all pipelines have one size, which an adapter says, or
is known of its maker, and where a kernel finds that lane k of a subgroup is invocation k of so many neighbours. Other adapters have no such subgroups.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

import numpy as np

from vyre_py.drivers.wgpu.library import errors, is_software
from vyre_py.lowering.target import SUBGROUP_SIZES

__all__ = ["FEATURE", "has_one_size", "lanes_of"]

FEATURE: Final = "subgroup"  # in wgpu-native's spelling

# A warp of every NVIDIA GPU has 32 lanes.
_NVIDIA: Final = 0x10DE

_known: dict[Any, int] = {}  # by adapter, which `library.adapters` keeps

# Workgroups of several sizes, and several of each.
_GROUP_SIZES: Final = (64, 256)
_GROUPS: Final = 5
_FACTS: Final = 4
_PROBE: Final = """@group(0) @binding(0) var<storage, read_write> found: array<vec4<u32>>;

@compute @workgroup_size({size}, 1, 1)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) local_index: u32,
  @builtin(subgroup_size) lanes: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {{
  let first = subgroupBroadcast(local_index, 0u);
  found[group.x * {size}u + local_index] = vec4<u32>(lanes, lane, first, subgroupAdd(1u));
}}
"""


def has_one_size(adapter: Any) -> bool:
    """Whether all pipelines of an adapter have subgroups of one size."""
    least, most = (adapter.info.get(f"subgroup_{which}_size") for which in ("min", "max"))
    return is_software(adapter) or adapter.info["vendor_id"] == _NVIDIA or (least is not None and least == most)


def lanes_of(package: ModuleType, adapter: Any, gpu: Any) -> int:
    """The lanes of the subgroups that built-ins see on `gpu`, a device of the adapter, where they are neighbours by `local_index` in workgroups along x; else
    0. An adapter's first device finds it out."""
    if adapter not in _known:
        try:
            _known[adapter] = _found(package, gpu) if FEATURE in gpu.features and has_one_size(adapter) else 0
        except errors():
            _known[adapter] = 0  # a driver that does not take the kernel takes no built-ins; a device that was lost raises at its next call
    return _known[adapter]


def _found(package: ModuleType, gpu: Any) -> int:
    seen = [_seen(package, gpu, size) for size in _GROUP_SIZES]
    size = int(seen[0][0, 0])
    return size if size in SUBGROUP_SIZES and all(np.array_equal(found, _neighbours(len(found), size)) for found in seen) else 0


def _neighbours(count: int, size: int) -> np.ndarray[Any, Any]:
    """What invocations see in workgroups whose subgroups of `size` lanes are neighbours."""
    local = np.tile(np.arange(count // _GROUPS, dtype=np.uint32), _GROUPS)
    lanes = np.full(count, size, np.uint32)
    return np.stack([lanes, local % lanes, local - local % lanes, lanes], axis=1)


def _seen(package: ModuleType, gpu: Any, size: int) -> np.ndarray[Any, Any]:
    """For each invocation of `_GROUPS` workgroups the size of its subgroup, its lane, the index of the first lane, and how many lanes add together."""
    pipeline = gpu.create_compute_pipeline(layout="auto", compute={"module": gpu.create_shader_module(code=_PROBE.format(size=size)), "entry_point": "main"})
    count = size * _GROUPS
    usage = package.BufferUsage
    found = gpu.create_buffer(size=count * _FACTS * np.dtype(np.uint32).itemsize, usage=usage.STORAGE | usage.COPY_SRC)
    entries = [{"binding": 0, "resource": {"buffer": found, "offset": 0, "size": found.size}}]
    group = gpu.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    encoder = gpu.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(_GROUPS)
    compute.end()
    gpu.queue.submit([encoder.finish()])
    return np.frombuffer(gpu.queue.read_buffer(found), np.uint32).reshape(count, _FACTS)
