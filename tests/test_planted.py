"""The suite catches bugs: each of `planted.table.PLANTS`, in a process of its own, is noticed by the check that is named with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from device_kinds import open_device
from filetest import WRITTEN, write_out
from planted.page import COMMAND, PAGE, page
from planted.plant import CAUGHT, ROOT, Detector
from planted.server import Server, floor_of
from planted.table import DETECTORS, FLOORS, PLANTS

SECONDS = 120


class Servers(dict[str, Server]):
    """By floor, each started when it is first asked for. They read the filetests that a process without a plant has written."""

    def __init__(self, written: Path) -> None:
        write_out(written)
        self.environment = {WRITTEN: str(written)}

    def __missing__(self, floor: str) -> Server:
        return self.setdefault(floor, Server(floor, self.environment))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """One of each for all tests."""
    started = Servers(tmp_path_factory.mktemp("written"))
    yield started
    for server in started.values():
        server.close()


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str, servers: Servers) -> None:
    plant = PLANTS[name]
    if plant.caught_by.device:
        open_device(plant.caught_by.device)
    floor = floor_of(plant)
    try:
        status, said = servers[floor].ask(name, SECONDS)
    except BaseException:
        servers.pop(floor).close()  # what it does now is not for the next one
        raise
    if plant.survives:
        assert status == 0, f"it is caught now: let the list say so\n{said}"
    else:
        assert status == CAUGHT or (plant.may_crash and status < 0), f"exit {status}\n{said}"


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.title)
def test_without_a_plant_nothing_is_noticed(detector: Detector) -> None:
    if detector.device:
        open_device(detector.device)
    assert detector.run() is None


def test_every_floor_has_plants_and_few_survive() -> None:
    assert len(PLANTS) == sum(map(len, FLOORS.values())) >= 40  # and no two of one name
    assert all(len(plants) >= 3 for plants in FLOORS.values())
    assert sum(bool(plant.survives) for plant in PLANTS.values()) <= len(PLANTS) // 20


@pytest.mark.parametrize("name", PLANTS)
def test_a_plant_fits_the_source_and_compiles(name: str) -> None:
    plant = PLANTS[name]
    compile(plant.planted(), str(plant.path), "exec")


def test_the_list_is_fresh() -> None:
    committed = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    assert committed == page(), f"{PAGE.relative_to(ROOT)} is not what the table says now: {COMMAND} rewrites it"
