"""What an adapter says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from vyre_py.ir.data_classes import dataclass

__all__ = ["AdapterProperties", "properties_of"]


@dataclass(frozen=True, slots=True)
class AdapterProperties:
    """An adapter as its driver describes it: its `kind` ("DiscreteGPU", "IntegratedGPU", "CPU"), the `backend` through which it is reached, the `features` and
    `limits` that WebGPU has for it, sizes in bytes, and what a device has of the features. `subgroup_size` is 0 where built-ins of subgroups are no use."""

    name: str
    vendor: str
    driver: str
    kind: str
    backend: str
    vendor_id: int
    device_id: int
    subgroup_size: int
    features: tuple[str, ...]
    features_used: tuple[str, ...]
    limits: Mapping[str, int] = field(hash=False)


def properties_of(adapter: Any, used: list[str], limits: Mapping[str, int], subgroup_size: int) -> AdapterProperties:
    """The properties of an adapter whose device has the features `used`, these limits, and subgroups of this size."""
    info = adapter.info
    return AdapterProperties(
        info["device"], info["vendor"], info["description"], info["adapter_type"], info["backend_type"], info["vendor_id"], info["device_id"], subgroup_size,
        tuple(sorted(adapter.features)), tuple(used), MappingProxyType(dict(sorted(limits.items()))),
    )
