"""The rules of the house that a machine can see. ARCHITECTURE.md says why each is there.

A rule is a function from a module to its offences. Each is run over the whole tree, and over a module made to break it, so that a
rule which no longer finds anything is noticed.
"""

from __future__ import annotations

import ast
import importlib
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePath
from typing import Final

import pytest
from tree import ROOT

FLOORS: Final = ("ir", "lowering", "drivers", "vyre_py")  # from the ground up

# Where a library may be imported. A library that stands in neither table is not a dependency of the project.
ANYWHERE: Final = {"ml_dtypes", "numpy", "vyre_py"}
HOMES: Final = {
    "PIL": ("vyre_py/",),
    "cuda": ("drivers/cuda/", "lowering/llvm/gpu/nvvm/libnvvm.py", "lowering/llvm/gpu/machine_code/nvjitlink.py"),  # the two are compilers, and need no GPU
    "jax": ("vyre_py/interop/jax/",),
    "dask": ("vyre_py/interop/dask/",),
    "distributed": ("vyre_py/interop/dask/",),
    "llvmlite": ("lowering/llvm/", "drivers/cpu/", "vyre_py/interop/numba.py"),  # Numba's own writer of LLVM IR
    "matplotlib": ("vyre_py/interop/roofline.py",),
    "numba": ("vyre_py/interop/numba.py",),
    "nvtx": ("drivers/observe/nvtx.py",),
    "nvmath": ("drivers/cuda/",),
    "platformdirs": ("drivers/", "vyre_py/"),
    "pydantic": ("vyre_py/settings.py",),
    "sympy": ("vyre_py/interop/torch/",),  # PyTorch's indices are its expressions
    "torch": ("vyre_py/interop/torch/",),
    "tqdm": ("drivers/observe/notebook_bar.py",),
    "tvm_ffi": ("vyre_py/interop/tvm_ffi.py",),
    "wgpu": ("drivers/wgpu/",),
}
RUNS_WHAT_IT_READS: Final = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
PICKLES: Final = "tests/ir/test_travel.py"  # asks for what other people's schedulers ask for; the project itself reads no pickle
# What runs as a process of its own, where no other thread forks; and the lock itself.
ALONE: Final = ("vyre_py/cli/", "vyre_py/demo/", "vyre_py/__main__.py", "ir/imports.py")
LONG: Final = 400
CROWDED: Final = 17  # modules of one folder, without its `__init__`
# Floor -> modules that stand in several of its folders, and why: the folders are parallel, so the same name is the same thing.
PARALLEL: Final[dict[str, dict[str, str]]] = {
    "ir": {
        "angles": "what they give (evaluate), and the same written out in other ops (math)",
        "comparisons": "what they give (evaluate), and which can give one thing only (check)",
        "float_parts": "what they give (evaluate), and the same written out in other ops (math)",
        "interpolation": "what it gives (evaluate), and the same written out in other ops (math)",
        "memory": "what is allowed (check), and what happens (interpret)",
        "packing": "what it gives (evaluate), and the same written out in other ops (math)",
        "types": "what they are (language), and the rules of them (check)",
    },
    "lowering": {
        "atomics": "of LLVM, and how lanes do them (cpu)",
        "legal": "what the passes do for a target: llvm, wgsl",
        "memory": "a memory of a Program on a target: cpu, wgsl",
        "ops": "the table of a target's ops: llvm, wgsl",
        "rows": "which accesses are one, and how lanes do them (cpu)",
        "types": "the types of a target: llvm, wgsl",
    },
    "drivers": {
        "callable": "a pipeline as a function: of all kinds, and of a kind of device (cpu)",
        "c_launch": "a launch as C sees it: of all kinds (sharing), of one",
        "device": "a kind of device, over what all have",
        "graph": "a captured graph: of all kinds (many), of CUDA",
        "launch": "a bound launch: of all kinds, of one",
        "library": "another's library, loaded and its errors made ours: cuda, wgpu",
        "memory": "the memory of a kind of device",
        "module": "loaded code of a kind of device",
        "peer": "copies between devices: of all kinds, of CUDA",
        "pending": "results on their way: of all kinds, of CUDA",
        "sequence": "several launches as one: of all kinds (many), of CUDA",
        "status": "the table of a library's statuses: cuda, wgpu",
        "strided": "strided copies: of all kinds, of CUDA",
    },
    "vyre_py": {},
}
# Module -> why what it imports in calls may import it.
CIRCLES: Final[dict[str, str]] = {
    "ir/language/program.py": "`Program.from_text` and its like are methods of what the readers make, and users call them there",
}
DEFENCE: Final = "One module because"


@dataclass(frozen=True)
class Module:
    """A source file: its path from the root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree, which most rules look through."""
        return tuple(ast.walk(self.tree))

    @property
    def floor(self) -> str:
        return self.path.partition("/")[0]

    @cached_property
    def imports(self) -> list[tuple[int, str]]:
        """Line and full dotted name of everything imported; relative imports begin with their dots."""
        found: list[tuple[int, str]] = []
        for node in self.nodes:
            match node:
                case ast.Import():
                    found += [(node.lineno, alias.name) for alias in node.names]
                case ast.ImportFrom():
                    origin = "." * node.level + (node.module or "")
                    found += [(node.lineno, f"{origin}.{alias.name}") for alias in node.names]
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(value=str(text)), *_]):
                    if name in {"import_module", "imported", "__import__"}:
                        found.append((node.lineno, text))
        return found

    @cached_property
    def comments(self) -> list[tuple[int, str]]:
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]

    @cached_property
    def docstrings(self) -> list[tuple[int, str]]:
        owners = (n for n in self.nodes if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef))
        return [(n.body[0].lineno, text) for n in owners if (text := ast.get_docstring(n)) is not None]


Offences = Iterator[tuple[int, str]]
Rule = Callable[[Module], Offences]


def floor_of(name: str) -> str:
    """The floor that a dotted name of ours belongs to; the package itself is the face."""
    part = name.split(".")[1:2]
    return part[0] if part and part[0] in FLOORS else "vyre_py"


def imports_point_down(module: Module) -> Offences:
    names = [(line, name) for line, name in module.imports if name.split(".")[0] == "vyre_py"]
    # A table of module names for import_module is an import too.
    texts = [(n.lineno, n.value) for n in module.nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    names += [(line, text) for line, text in texts if re.fullmatch(r"vyre_py(\.\w+)+", text)]
    here = FLOORS.index(module.floor)
    for line, name in names:
        if FLOORS.index(floor_of(name)) > here:
            yield line, f"{module.floor} imports {name}, which is above it"


def imports_are_absolute(module: Module) -> Offences:
    for line, name in module.imports:
        if name.startswith("."):
            yield line, f"relative import of {name}: write the floor out"
        elif name.split(".")[0] in {"ir", "lowering", "drivers"}:
            yield line, f"{name} is imported as vyre_py.{name}"


def libraries_stay_at_home(module: Module) -> Offences:
    for line, name in module.imports:
        library = name.split(".")[0]
        if library in HOMES and not module.path.startswith(HOMES[library]):
            yield line, f"{library} is imported in {' and '.join(HOMES[library])} only"


def libraries_are_dependencies(module: Module) -> Offences:
    for line, name in module.imports:
        library = name.split(".")[0]
        if library and library not in ANYWHERE and library not in HOMES and library not in sys.stdlib_module_names:
            yield line, f"{library} is not a dependency of the project"


def nothing_read_is_run(module: Module) -> Offences:
    for line, name in module.imports:
        if name.split(".")[0] in RUNS_WHAT_IT_READS and module.path != PICKLES:
            yield line, f"{name}: a file that is read must not be able to run code"
    for node in module.nodes:
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and getattr(node.value, "value", None) is not False:
            yield node.value.lineno, "allow_pickle: a file that is read must not be able to run code"


def long_modules_defend_themselves(module: Module) -> Offences:
    length = len(module.text.splitlines())
    said = any(line.startswith(DEFENCE) for line in (ast.get_docstring(module.tree) or "").splitlines())
    if length > LONG and not said:
        yield 1, f"{length} lines: divide it, or say why not in a line of its docstring that starts with {DEFENCE!r}"


def silenced_checks_have_reasons(module: Module) -> Offences:
    code = r"[A-Z]+[0-9]+"
    markers = rf"#\s*(type:\s*ignore(\[[^\]]*\])?|noqa(:\s*{code}([,\s]+{code})*)?)"
    for line, comment in module.comments:
        if re.search(markers, comment) and len(re.findall(r"\w+", re.sub(markers, "", comment))) < 2:
            yield line, f"{comment!r} silences a checker without saying why"


def nothing_is_left_undone(module: Module) -> Offences:
    for line, text in module.comments + module.docstrings:
        if found := re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text):
            yield line, f"{found[0]}: finish it, or say in prose what is not there"


def properties_hold_no_lock(module: Module) -> Offences:
    for line, name in module.imports:
        if name == "functools.cached_property":
            yield line, "before Python 3.12 it holds one lock for all instances: take vyre_py.ir.cached"


def late_imports_hold_the_lock(module: Module) -> Offences:
    if module.path.startswith(ALONE):
        return
    statements = [n for n in module.nodes if isinstance(n, ast.Import | ast.ImportFrom)]
    functions = (n for n in module.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    spans = [(f.lineno, f.end_lineno or f.lineno) for f in functions] if any(n.col_offset for n in statements) else []
    late = {n.lineno for n in statements if any(first <= n.lineno <= last for first, last in spans)}
    blocks = (n for n in module.nodes if isinstance(n, ast.With) and any(ast.unparse(i.context_expr) == "importing" for i in n.items))
    held = {n.lineno for block in blocks for n in ast.walk(block) if isinstance(n, ast.Import | ast.ImportFrom)}
    late |= {line for line, name in module.imports if name in ("importlib.import_module", "importlib")}
    for line in sorted(late - held):
        yield line, "an import in a call is made `with importing:` of vyre_py.ir.imports, or by its `imported`: a forked child may hang in it"


def handlers_name_what_they_catch(module: Module) -> Offences:
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield node.lineno, "a bare except also catches the user's Ctrl-C"


def class_names_stand_once(modules: Sequence[Module]) -> Iterator[str]:
    """Leading underscores do not tell two names apart."""
    places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                places[module.floor, node.name.lstrip("_")].append(f"{module.path}:{node.lineno}")
    for (_, name), found in places.items():
        if len(found) > 1:
            yield f"class {name}: {', '.join(found)}"


def folders_are_not_crowded(modules: Sequence[Module]) -> Iterator[str]:
    for folder, count in Counter(PurePath(module.path).parent.as_posix() for module in modules if not module.path.endswith("/__init__.py")).items():
        if count > CROWDED:
            yield f"{folder}: {count} modules"


def module_names_stand_once(modules: Sequence[Module]) -> Iterator[str]:
    places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for module in modules:
        if not (name := PurePath(module.path).stem).startswith("__"):
            places[module.floor, name].append(module.path)
    for (floor, name), found in places.items():
        if len(found) > 1 and name not in PARALLEL[floor]:
            yield f"module {name}: {', '.join(found)}"
    for floor in {floor for floor, _ in places}:
        for name in sorted(PARALLEL[floor]):
            if len(places[floor, name]) == 1:
                yield f"module {name}: {places[floor, name][0]} is alone in {floor}: the table need not have it"


# Rule of a whole floor -> modules that break it, and what is said of them.
def imports_make_no_circle(modules: Sequence[Module]) -> Iterator[str]:
    """Of what is imported at once and in calls: not for type checkers alone."""
    dotted = {("" if m.floor == "vyre_py" else "vyre_py.") + m.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): m for m in modules}

    def graph(excused: Container[str]) -> dict[str, set[str]]:
        made = {}
        for name, module in dotted.items():
            found = {text for statement in _run(module.tree, module.path not in excused) for text in _imported(statement)}
            # `from package import name` imports the module of that name, or the package that has it.
            made[name] = {known for text in found if (known := text if text in dotted else text.rpartition(".")[0]) in dotted and known != name}
        return made

    def circle(excused: Container[str]) -> str:
        try:
            TopologicalSorter(graph(excused)).prepare()
        except CycleError as error:
            return " imports ".join(error.args[1])
        return ""

    if found := circle(CIRCLES):
        yield found
    for path in sorted(CIRCLES.keys() & {module.path for module in modules}):
        if not found and not circle(CIRCLES.keys() - {path}):
            yield f"{path} is in no circle: the table need not have it"


def _run(node: ast.AST, calls: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that are made when a module is imported, and in calls."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            late = [*child.body, *child.orelse] if calls and _defers(child.orelse) else child.orelse
            yield from (found for statement in late for found in _run(ast.Module([statement], []), calls))
        elif not isinstance(child, ast.expr) and (calls or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield from _run(child, calls)


def _defers(statements: Sequence[ast.stmt]) -> bool:
    """Whether these put what is imported in a call in place of what type checkers see."""
    return any(isinstance(node, ast.Call) and ast.unparse(node.func) == "deferred" for statement in statements for node in ast.walk(statement))


def _imported(statement: ast.Import | ast.ImportFrom) -> list[str]:
    origin = f"{statement.module}." if isinstance(statement, ast.ImportFrom) else ""
    return [origin + alias.name for alias in statement.names]


FLOOR_RULES: Final[dict[Callable[[Sequence[Module]], Iterator[str]], tuple[tuple[Module, ...], list[str]]]] = {
    class_names_stand_once: (
        (Module("ir/a.py", "class A: ..."), Module("ir/b/c.py", "\nclass _A:\n    class B: ..."), Module("lowering/a.py", "class B: ...")),
        ["class A: ir/a.py:1, ir/b/c.py:2"],
    ),
    folders_are_not_crowded: (
        (*[Module(f"ir/a/m{k}.py", "") for k in range(CROWDED + 1)], *[Module(f"ir/b/m{k}.py", "") for k in range(CROWDED)], Module("ir/b/__init__.py", "")),
        [f"ir/a: {CROWDED + 1} modules"],
    ),
    module_names_stand_once: (
        tuple(Module(path, "") for path in (
            "lowering/a.py", "lowering/b/a.py", "ir/a.py", "lowering/ops.py", "lowering/b/ops.py", "lowering/b/legal.py", "ir/__init__.py", "ir/b/__init__.py",
        )),
        ["module a: lowering/a.py, lowering/b/a.py", "module legal: lowering/b/legal.py is alone in lowering: the table need not have it"],
    ),
    imports_make_no_circle: (
        (
            Module("ir/a.py", "from vyre_py.ir.b import x"), Module("ir/b.py", "if TYPE_CHECKING:\n    import vyre_py.ir.a\nfrom vyre_py.ir import c"),
            Module("ir/c.py", "def f():\n    with importing:\n        import vyre_py.ir.d"),
            Module("ir/d.py", "if TYPE_CHECKING:\n    from vyre_py.ir import c, e\nelse:\n    c, e = deferred('vyre_py.ir', 'c', 'e')"),
        ),
        ["vyre_py.ir.c imports vyre_py.ir.d imports vyre_py.ir.c"],
    ),
}  # fmt: skip


# Rule -> (the folders it is about, a module that breaks it).
SOURCE: Final = FLOORS
EVERYTHING: Final = (*FLOORS, "examples", "tests")
RULES: Final[dict[Rule, tuple[tuple[str, ...], Module]]] = {
    imports_point_down: (SOURCE, Module("ir/a.py", 'from vyre_py import device\nT = {"x": "vyre_py.lowering.llvm"}\nimport vyre_py.drivers')),
    imports_are_absolute: (EVERYTHING, Module("drivers/a.py", "from ..lowering import target\nfrom . import b\nimport ir.types")),
    libraries_stay_at_home: (
        SOURCE,
        Module("lowering/a.py", "from cuda.bindings import nvjitlink\nimport wgpu, pydantic\nimported('llvmlite.binding')"),
    ),
    libraries_are_dependencies: (SOURCE, Module("drivers/cuda/a.py", "def f():\n    import cupy.cuda\n    import tensorflow")),
    nothing_read_is_run: (EVERYTHING, Module("drivers/a.py", "import pickle\nfrom marshal import loads\nnp.load(f, allow_pickle=yes)")),
    long_modules_defend_themselves: (SOURCE, Module("ir/a.py", '"""A table.\n\nIt is long."""\n' + "x = 1\n" * LONG)),
    silenced_checks_have_reasons: (EVERYTHING, Module("ir/a.py", "a = 1  # type: ignore[misc]\nb = 2  # noqa: F401, E501\nc = 3  # noqa")),
    nothing_is_left_undone: (EVERYTHING, Module("ir/a.py", '"""A.\n\nTO' + 'DO: b.\n"""\n# FIX' + "ME later\n")),
    properties_hold_no_lock: (SOURCE, Module("ir/a.py", "from functools import cache, cached_property")),
    late_imports_hold_the_lock: (
        SOURCE,
        Module("ir/a.py", "from importlib import import_module\nimport a\ndef f():\n    import b\n    with importing:\n        import c\n    from d import e"),
    ),
    handlers_name_what_they_catch: (EVERYTHING, Module("ir/a.py", "try:\n    f()\nexcept:\n    g()")),
}
# What the rules must let pass.
BLAMELESS: Final = Module(
    "lowering/llvm/a.py",
    '"""A table.\n\nOne module because its rows are read against each other.\n"""\n'
    "import llvmlite.binding as llvm\nimport numpy as np\nfrom vyre_py.ir.language.types import f32\nimport vyre_py.lowering.target\n"
    "np.load(f, allow_pickle=False)\n"
    "a = 1  # type: ignore[misc]  # the stub says int, the library gives str\nb = 2  # noqa: F401 - named so that the table is complete\n"
    "try:\n    f()\nexcept OSError:\n    g()\n" + "x = 1\n" * LONG,
)


@cache
def modules_of(folder: str) -> tuple[Module, ...]:
    return tuple(Module(p.relative_to(ROOT).as_posix(), p.read_text("utf-8")) for p in sorted((ROOT / folder).rglob("*.py")))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: Rule) -> None:
    folders, _ = RULES[rule]
    modules = [module for folder in folders for module in modules_of(folder)]
    assert len(modules) > len(folders)
    offences = [f"{module.path}:{line}: {what}" for module in modules for line, what in rule(module)]
    assert not offences, "\n" + "\n".join(offences)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_finds_every_offence_and_no_other(rule: Rule) -> None:
    _, guilty = RULES[rule]
    expected = {
        imports_point_down: [1, 2, 3], imports_are_absolute: [1, 2, 3], libraries_stay_at_home: [1, 2, 2, 3],
        libraries_are_dependencies: [2, 3], nothing_read_is_run: [1, 2, 3], long_modules_defend_themselves: [1],
        silenced_checks_have_reasons: [1, 2, 3], nothing_is_left_undone: [1, 5], properties_hold_no_lock: [1],
        late_imports_hold_the_lock: [1, 4, 7], handlers_name_what_they_catch: [3],
    }
    assert sorted(line for line, _ in rule(guilty)) == expected[rule]
    assert list(rule(BLAMELESS)) == []


@pytest.mark.parametrize("rule", FLOOR_RULES, ids=lambda rule: rule.__name__)
def test_rule_of_floors(rule: Callable[[Sequence[Module]], Iterator[str]]) -> None:
    offences = list(rule([module for floor in FLOORS for module in modules_of(floor)]))
    assert not offences, "\n" + "\n".join(offences)


@pytest.mark.parametrize("rule", FLOOR_RULES, ids=lambda rule: rule.__name__)
def test_rule_of_floors_finds_every_offence_and_no_other(rule: Callable[[Sequence[Module]], Iterator[str]]) -> None:
    guilty, expected = FLOOR_RULES[rule]
    assert list(rule(guilty)) == expected


def test_public_names_are_sorted_and_there() -> None:
    face = importlib.import_module("vyre_py")
    names: list[str] = face.__all__
    assert names == sorted(set(names))
    assert [name for name in names if not hasattr(face, name)] == []


def test_every_folder_of_a_floor_is_a_package() -> None:
    """A folder without `__init__.py` would be missing from the wheel."""
    folders = {path.parent for floor in FLOORS for path in (ROOT / floor).rglob("*.py")}
    assert [str(f.relative_to(ROOT)) for f in sorted(folders) if not (f / "__init__.py").is_file()] == []
