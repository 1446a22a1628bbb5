"""Settings: every variable of the environment that vyre-py reads, what it means, and whether what it holds makes sense.

The parts that obey a variable read it themselves, since importing pydantic takes longer than a launch's whole way; this is the table of all of them, for
the command line and for programs that want to know before anything runs:

    settings = Settings.from_environment()
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from vyre_py.ir.language.errors import VyreError, shown

__all__ = ["PREFIX", "Settings", "SettingsError", "unknown_variables"]

PREFIX: Final = "VYRE_"
_MIB: Final = 1 << 20


class SettingsError(VyreError):
    """Variables of the environment that make no sense: `problems` has a sentence for each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("settings from the environment:\n" + "\n".join(f"  - {problem}" for problem in problems))


def _bytes(given: object) -> object:
    if isinstance(given, str) and not (given.strip().isascii() and given.strip().isdigit()):
        raise ValueError("a whole number of bytes is needed, such as 268435456")
    return int(given.strip()) if isinstance(given, str) else given


def _threads(given: object) -> object:
    if isinstance(given, str) and not (given.strip().isascii() and given.strip().isdigit()):
        raise ValueError("a whole number of threads is needed, such as 4")
    return int(given.strip()) if isinstance(given, str) else given


def _device(given: object) -> object:
    if given is None:
        return None
    kinds = ("cuda", "wgpu", "cpu", "reference")
    kind, sign, ordinal = str(given).partition(":")
    if kind not in kinds or (sign and not (ordinal.isascii() and ordinal.isdigit() and len(ordinal) <= 4)):
        raise ValueError(f"a device is needed: {', '.join(kinds)}, each with an ordinal if wanted (cuda:0)")
    return given


def _directory(given: object) -> object:
    if isinstance(given, str) and (not given.strip() or "\0" in given):
        raise ValueError("a directory is needed; unset it for the usual place")
    return given


def _file(given: object) -> object:
    if isinstance(given, str) and "\0" in given:
        raise ValueError("the path of a file is needed")
    return given.strip() if isinstance(given, str) else given


def _directories(given: object) -> object:
    return tuple(part for part in given.split(os.pathsep) if part.strip()) if isinstance(given, str) else given


def _switch(given: object) -> object:
    return given.strip() not in ("", "0") if isinstance(given, str) else given


_Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=0)]
_Threads = Annotated[int | None, BeforeValidator(_threads), Field(ge=1, le=4096)]
_Device = Annotated[str | None, BeforeValidator(_device)]
_Directory = Annotated[Path | None, BeforeValidator(_directory)]
_File = Annotated[Path | None, BeforeValidator(_file)]
_Directories = Annotated[tuple[Path, ...], BeforeValidator(_directories)]
_Assembler = Annotated[Literal["nvjitlink", "driver"] | None, BeforeValidator(lambda given: given.strip() if isinstance(given, str) else given)]
_Switch = Annotated[bool, BeforeValidator(_switch)]


def _variable(name: str, default: Any, meaning: str) -> Any:
    return Field(default=default, alias=PREFIX + name, description=meaning)


class Settings(BaseModel):
    """All settings, with their defaults. `from_environment` reads them; each field's alias is the variable's name, its description what it does."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    device: _Device = _variable("DEVICE", None, "the device that is taken where none is named; unset, the best that is here")
    cache_dir: _Directory = _variable("CACHE_DIR", None, "where the disk cache lies; unset, the user's place for caches")
    cache_limit: _Bytes = _variable("CACHE_LIMIT", 1024 * _MIB, "bytes that the disk cache may take; 0 turns it off")
    cache_read_only: _Directories = _variable(
        "CACHE_READ_ONLY", (), "directories, separated as in PATH, that are looked through after the disk cache and never written"
    )
    cpu_threads: _Threads = _variable(
        "CPU_THREADS", None, "how many threads run a grid on the CPU at most; unset, one for each core that the process may use, or as OMP_NUM_THREADS says"
    )
    device_pool_bytes: _Bytes = _variable("DEVICE_POOL_BYTES", 256 * _MIB, "device memory that a CUDA or WebGPU device keeps for reuse")
    pool_release_threshold: _Bytes = _variable("POOL_RELEASE_THRESHOLD", 256 * _MIB, "bytes that the CUDA driver's own pool holds on to when idle")
    pinned_pool_bytes: _Bytes = _variable(
        "PINNED_POOL_BYTES", 128 * _MIB, "page-locked host memory that a CUDA device keeps for reuse, or staging buffers that a WebGPU device keeps"
    )
    assembler: _Assembler = _variable("ASSEMBLER", None, "who makes machine code of PTX on CUDA devices: nvjitlink or driver; unset, nvjitlink if it is there")
    trace: _File = _variable(
        "TRACE", None, "the file that a trace of the whole process goes to; {pid} in it is the process's number, which names the files of those it starts"
    )
    nvtx: _Switch = _variable("NVTX", False, "whether NVTX ranges are pushed for the whole process; anything but 0 does")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """The settings in effect. A variable that is empty counts as unset, but for VYRE_CACHE_DIR. Raises SettingsError with all that make no sense."""
        given = dict(_given(os.environ if environment is None else environment))
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            problems = (f"{row['loc'][0]}={shown(given[str(row['loc'][0])])}: {row['msg'].removeprefix('Value error, ')}" for row in error.errors())
            raise SettingsError(tuple(problems)) from None

    @classmethod
    def rows(cls) -> tuple[tuple[str, str, str], ...]:
        """For each variable: its name, the field that holds it, and what it means."""
        return tuple((str(field.alias), name, str(field.description)) for name, field in cls.model_fields.items())


def _given(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for variable, name, _ in Settings.rows():
        value = environment.get(variable)
        if value is not None and (value.strip() or name == "cache_dir"):
            yield variable, value


def unknown_variables(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """A sentence for each unknown variable with our prefix: likely a misspelling."""
    known = {variable.removeprefix(PREFIX) for variable, _, _ in Settings.rows()}
    given = os.environ if environment is None else environment
    sentences = []
    for name in sorted(name.removeprefix(PREFIX) for name in given if name.startswith(PREFIX)):
        if name not in known:
            close = get_close_matches(name, known, 1)
            sentences.append(f"{shown(PREFIX + name)} means nothing" + (f"; did you mean {PREFIX}{close[0]}?" if close else ""))
    return tuple(sentences)
