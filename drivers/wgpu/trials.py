"""What small kernels find out of an adapter's devices, and what only WebGPU's word would be taken for otherwise.

*Subgroups*: how many lanes the built-ins see, and whether those are neighbours by `local_index`. WebGPU leaves both to the device, and the size even to each
pipeline. So built-ins are of use where all pipelines have one size, which an adapter says, or is known of its maker, and where a kernel finds that lane k of
a subgroup is invocation k of so many neighbours. Other adapters have no such subgroups.

*f16*: whether conversions from f32 round once, to nearest even, keep subnormal numbers and end in infinity, which WebGPU leaves to the device as well.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import numpy as np

from vyre_py.drivers.wgpu.library import errors, is_software
from vyre_py.lowering.target import SUBGROUP_SIZES
from vyre_py.lowering.wgsl.helpers import OF_HALVES

__all__ = ["HALVES", "SUBGROUPS", "converts_halves", "has_one_size", "lanes_of"]

SUBGROUPS: Final = "subgroup"  # in wgpu-native's spelling
HALVES: Final = "shader-f16"

Array = np.ndarray[Any, np.dtype[Any]]
Words = np.ndarray[Any, np.dtype[np.uint32]]

# A warp of every NVIDIA GPU has 32 lanes.
_NVIDIA: Final = 0x10DE

_known: dict[tuple[str, Any], int] = {}  # by adapter, which `library.adapters` keeps

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

_PATTERNS: Final = 1 << 16
_HALF_GROUP: Final = 256
# Each f16 as f32, and back from memory; an f32 on or next to the middle between two f16, stored and packed.
_HALF_PROBE: Final = f"""enable f16;
@group(0) @binding(0) var<storage, read_write> found: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> held: array<f16>;

{OF_HALVES["f32_of_f16"]}

{OF_HALVES["f16_of_f32"]}

@compute @workgroup_size({_HALF_GROUP}, 1, 1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
  let bits = id.x;
  let wide = f32_of_f16(bits);
  held[bits] = f16(wide);
  let back = bitcast<u32>(f32(held[bits]));
  let between = bitcast<f32>(bitcast<u32>(wide) + 0x0fffu + bits % 3u);
  held[bits] = f16(between);
  found[bits] = vec4<u32>(bitcast<u32>(wide), back, f16_of_f32(between), f16_of_f32(f32(held[bits])));
}}
"""


def has_one_size(adapter: Any) -> bool:
    """Whether all pipelines of an adapter have subgroups of one size."""
    least, most = (adapter.info.get(f"subgroup_{which}_size") for which in ("min", "max"))
    return is_software(adapter) or adapter.info["vendor_id"] == _NVIDIA or (least is not None and least == most)


def lanes_of(package: ModuleType, adapter: Any, gpu: Any) -> int:
    """The lanes of the subgroups that built-ins see on `gpu`, a device of the adapter, where they are neighbours by `local_index` in workgroups along x; else
    0. An adapter's first device finds it out."""
    return _tried(adapter, SUBGROUPS, lambda: _found(package, gpu) if SUBGROUPS in gpu.features and has_one_size(adapter) else 0)


def converts_halves(package: ModuleType, adapter: Any, gpu: Any) -> bool:
    """Whether f16 lie in the buffers of `gpu`, a device of the adapter, and are converted as the language does. An adapter's first device finds it out."""
    return bool(_tried(adapter, HALVES, lambda: int(HALVES in gpu.features and _are_exact(_converted(package, gpu)))))


def _tried(adapter: Any, what: str, trial: Callable[[], int]) -> int:
    if (what, adapter) not in _known:
        try:
            _known[what, adapter] = trial()
        except errors():
            _known[what, adapter] = 0  # a driver that does not take the kernel has nothing of it; a device that was lost raises at its next call
    return _known[what, adapter]


def _found(package: ModuleType, gpu: Any) -> int:
    seen = [_seen(package, gpu, size) for size in _GROUP_SIZES]
    size = int(seen[0][0, 0])
    return size if size in SUBGROUP_SIZES and all(np.array_equal(found, _neighbours(len(found), size)) for found in seen) else 0


def _neighbours(count: int, size: int) -> Words:
    """What invocations see in workgroups whose subgroups of `size` lanes are neighbours."""
    local = np.tile(np.arange(count // _GROUPS, dtype=np.uint32), _GROUPS)
    lanes = np.full(count, size, np.uint32)
    return np.stack([lanes, local % lanes, local - local % lanes, lanes], axis=1)


def _seen(package: ModuleType, gpu: Any, size: int) -> Words:
    """For each invocation of `_GROUPS` workgroups the size of its subgroup, its lane, the index of the first lane, and how many lanes add together."""
    return _run(package, gpu, _PROBE.format(size=size), size * _GROUPS, _GROUPS)


def _converted(package: ModuleType, gpu: Any) -> Words:
    """For each pattern of f16 what `_HALF_PROBE` finds."""
    return _run(package, gpu, _HALF_PROBE, _PATTERNS, _PATTERNS // _HALF_GROUP, _PATTERNS * np.dtype(np.float16).itemsize)


def _are_exact(found: Words) -> bool:
    """Whether conversions between f16 and f32 are the language's, any NaN being as good as another."""
    patterns = np.arange(_PATTERNS, dtype=np.uint16)
    with np.errstate(invalid="ignore", over="ignore"):  # NumPy widens exactly, and rounds once to nearest even
        wide = patterns.view(np.float16).astype(np.float32)
        between = (wide.view(np.uint32) + np.uint32(0x0FFF) + patterns % np.uint32(3)).view(np.float32)
        narrow = between.astype(np.float16)
    wanted: tuple[Array, ...] = (wide, wide, narrow, narrow)
    return all(_same(column, want) for column, want in zip(found.T, wanted, strict=True))


def _same(words: Words, want: Array) -> bool:
    """Whether words hold these floats, any NaN being as good as another."""
    bits = f"u{want.itemsize}"
    got = words.astype(bits).view(want.dtype)
    return bool(((got.view(bits) == want.view(bits)) | (np.isnan(got) & np.isnan(want))).all())


def _run(package: ModuleType, gpu: Any, code: str, count: int, groups: int, *sizes: int) -> Words:
    """What a kernel puts into an array of `count` vectors of `_FACTS` words, beside buffers of these sizes in bytes."""
    pipeline = gpu.create_compute_pipeline(layout="auto", compute={"module": gpu.create_shader_module(code=code), "entry_point": "main"})
    usage = package.BufferUsage
    wanted = (count * _FACTS * np.dtype(np.uint32).itemsize, *sizes)
    buffers = [gpu.create_buffer(size=size, usage=usage.STORAGE | usage.COPY_SRC) for size in wanted]
    entries = [{"binding": number, "resource": {"buffer": b, "offset": 0, "size": b.size}} for number, b in enumerate(buffers)]
    group = gpu.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    encoder = gpu.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(groups)
    compute.end()
    gpu.queue.submit([encoder.finish()])
    return np.frombuffer(gpu.queue.read_buffer(buffers[0]), np.uint32).reshape(count, _FACTS)
