"""The four floors import as one package: from a checkout, installed, and installed editable; from the root and from elsewhere.

Every probe is a process of its own, in a virtual environment that sees this one's dependencies but no vyre-py that happens to be
installed here. Nothing goes to the network.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from tree import ROOT

import vyre_py

FLOORS = ("ir", "lowering", "drivers")
IN_ARCHIVE = (*FLOORS, "vyre_py", "examples", "include", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
PHOTOGRAPH = "vyre_py/examples/data/chelsea.png"

PROBE = """
import importlib, importlib.resources, json
names = ["vyre_py", "vyre_py.ir", "vyre_py.lowering", "vyre_py.drivers", "vyre_py.ir.language.types", "vyre_py.ir.check"]
files = {name: importlib.import_module(name).__file__ for name in names}
picture = importlib.resources.files("vyre_py.examples.data").joinpath("chelsea.png").read_bytes()
import vyre_py
header = (vyre_py.include_dir() / "vyre.h").read_text()
print(json.dumps([files, picture[:4] == b"\\x89PNG" and "VYRE_ABI_VERSION 1" in header]))
"""


def run(*command: str | Path, cwd: Path, path: Path | None = None) -> str:
    """Runs a command that has to succeed, and gives what it printed."""
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def copy_of_tree(destination: Path) -> Path:
    """The files that are packaged, in a folder of their own, since building leaves folders behind that the next build would read."""
    destination.mkdir()
    for name in IN_ARCHIVE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, destination / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, destination / name)
    return destination


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Links to all that is installed here, vyre-py itself and the hooks of editable installs left out."""
    farm = tmp_path_factory.mktemp("dependencies")
    for folder in (Path(entry) for entry in sys.path if Path(entry).name in {"site-packages", "dist-packages"}):
        for item in folder.iterdir():
            ours = item.name.lower().startswith(("vyre_py", "vyre-py", "__editable__"))
            if not ours and item.suffix != ".pth" and not (farm / item.name).exists():
                (farm / item.name).symlink_to(item)
    return farm


class Installation:
    """A virtual environment, the source tree beside it, and how a probe in it reaches vyre-py."""

    def __init__(self, folder: Path, dependencies: Path) -> None:
        self.tree = copy_of_tree(folder / "tree")
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        venv.create(folder / "venv", with_pip=False, symlinks=os.name != "nt")
        self.scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.scripts / "python"
        self.site = Path(run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
        (self.site / "dependencies.pth").write_text(f"{dependencies}\n")
        self.path: Path | None = None

    def install(self, *arguments: str) -> None:
        run(
            sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--disable-pip-version-check",
            "--no-index", "--no-deps", "--no-build-isolation", *arguments,
            cwd=self.tree,
        )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, dependencies: Path) -> Installation:
    made = Installation(tmp_path_factory.mktemp("checkout"), dependencies)
    made.path = made.tree
    return made


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, dependencies: Path) -> Installation:
    made = Installation(tmp_path_factory.mktemp("installed"), dependencies)
    made.install(".")
    return made


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory, dependencies: Path) -> Installation:
    made = Installation(tmp_path_factory.mktemp("editable"), dependencies)
    made.install("-e", ".")
    return made


@pytest.mark.parametrize("how", ["checkout", "installed", "editable"])
@pytest.mark.parametrize("where", ["root", "elsewhere"])
def test_all_floors_import_from_one_place(how: str, where: str, request: pytest.FixtureRequest) -> None:
    there: Installation = request.getfixturevalue(how)
    # In the root the current folder comes first, whatever is installed.
    cwd, path = (there.tree, None) if where == "root" else (there.elsewhere, there.path)
    files, picture_read = json.loads(run(there.python, "-c", PROBE, cwd=cwd, path=path))
    home = there.site if how == "installed" and where == "elsewhere" else there.tree
    assert {name: file for name, file in files.items() if not Path(file).resolve().is_relative_to(home.resolve())} == {}
    assert picture_read
    assert "vyre" in run(there.python, "-m", "vyre_py", "--help", cwd=cwd, path=path)


@pytest.mark.parametrize("how", ["installed", "editable"])
def test_the_command_is_installed(how: str, request: pytest.FixtureRequest) -> None:
    there: Installation = request.getfixturevalue(how)
    assert "demo" in run(there.scripts / "vyre-py", "--help", cwd=there.elsewhere)


def test_an_editable_installation_sees_new_modules(editable: Installation) -> None:
    new = editable.tree / "lowering" / "brand_new"
    new.mkdir()
    (new / "__init__.py").write_text("VALUE = 7\n")
    program = "from vyre_py.lowering.brand_new import VALUE; print(VALUE)"
    assert run(editable.python, "-c", program, cwd=editable.elsewhere).strip() == "7"


def sources() -> set[str]:
    """Every module and every data file of the package, by its name in the wheel."""
    held = (".py", ".pyi", ".md", ".js", ".html", ".css")
    found = {f"vyre_py/{p.relative_to(ROOT / 'vyre_py').as_posix()}" for p in (ROOT / "vyre_py").rglob("*") if p.suffix in held}
    for floor in FLOORS:
        for pattern in ("*.py", "*.md", "*.schema.json"):
            found |= {f"vyre_py/{p.relative_to(ROOT).as_posix()}" for p in (ROOT / floor).rglob(pattern)}
    return found | {"vyre_py/py.typed", "vyre_py/include/vyre.h", PHOTOGRAPH, "vyre_py/examples/data/PHOTO-LICENSE.md"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source archive, and the wheel that is made from it."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "out", copy_of_tree(folder / "tree"), cwd=folder)
    found = {path.suffix: path for path in (folder / "out").iterdir()}
    return {"wheel": found.pop(".whl"), "sdist": found.pop(".gz")}


def test_the_version_is_one(built: dict[str, Path]) -> None:
    """That of the package, of what is built, and of the newest release in the changelog."""
    said, *_ = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert vyre_py.__version__ == said
    assert [path.name.startswith(f"vyre_py-{said}") for path in built.values()] == [True, True]


def test_what_is_built_is_fit_for_an_index(built: dict[str, Path]) -> None:
    """Its description renders, too."""
    assert run(sys.executable, "-m", "twine", "check", "--strict", *built.values(), cwd=ROOT).count("PASSED") == 2


@pytest.mark.parametrize("what", ["wheel", "sdist"])
def test_what_is_built_runs_the_demo(what: str, built: dict[str, Path], dependencies: Path, tmp_path: Path) -> None:
    there = Installation(tmp_path, dependencies)
    there.install(str(built[what]))
    said = run(there.python, "-m", "vyre_py", "demo", "--device", "cpu", cwd=there.elsewhere)
    assert "sharpen" in said and list(there.elsewhere.rglob("*.png"))


def test_the_wheel_made_from_the_source_archive_holds_everything(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
    assert names == sources()


def test_import_loads_no_heavy_library(checkout: Installation) -> None:
    heavy = {
        "PIL", "cuda", "dask", "distributed", "hypothesis", "jax", "jaxlib", "llvmlite", "matplotlib", "mpmath", "numba", "pydantic", "pydantic_core",
        "scipy", "sympy", "torch", "tvm_ffi", "wgpu",
    }  # fmt: skip
    program = "import sys, vyre_py; vyre_py.ProgramBuilder; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = set(run(checkout.python, "-c", program, cwd=checkout.elsewhere, path=checkout.path).split())
    assert not loaded & heavy
    assert {"vyre_py", "numpy"} <= loaded
