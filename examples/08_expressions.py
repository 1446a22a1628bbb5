"""A compiler for a toy language of formulas. It hands over flat arrays, and gets code for three kinds of machine, none of which has to be here.

    python examples/08_expressions.py [cuda, wgpu or cpu]        writes formula.vyre
"""

import re
import sys

import numpy as np

import vyre_py as vp
from vyre_py.ir.language.types import encode

WORD = re.compile(r"\s*(\d+(?:\.\d+)?|[a-z]\w*|\S)")
INFIX = {"+": (1, "add"), "-": (1, "sub"), "*": (2, "mul"), "/": (2, "div")}  # mark -> how tightly it binds, and the op
CALLS = {"sqrt": 1, "abs": 1, "min": 2, "max": 2}  # function -> how many arguments; the ops have the same names


class Compiler:
    """out[i] = a formula of x[i], y[i] and whatever it names. Parses by precedence climbing, and emits each op as soon as it is known."""

    def __init__(self, formula: str) -> None:
        self.words: list[str] = [*WORD.findall(formula), "the end"]
        self.rows: list[tuple[str, str | int, int, tuple[int, ...]]] = []  # of each statement: code, type, memory, operands
        self.arrays, self.constants = dict[str, int](), list[int]()
        self.index = self.emit("global_id.x", "u32")
        self.emit("store", 0, self.index, self.expression(), memory=len(self.arrays))
        self.take("the end")
        codes, types, refs, operands = zip(*self.rows, strict=True)
        accesses = {**dict.fromkeys(self.arrays, "read"), "out": "write"}
        self.program = vp.Program.from_nodes(
            "formula", doc=formula, dims=["n"], codes=codes, types=types, refs=refs, operands=sum(operands, ()), offsets=np.cumsum([0, *map(len, operands)]),
            memories=[{"name": name, "space": "buffer", "type": "f32", "shape": ["n"], "access": access} for name, access in accesses.items()],
            constant_types=["f32"] * len(self.constants), constant_bits=self.constants,
        )  # fmt: skip

    def emit(self, code: str, type_: str | int, *operands: int, memory: int = 0) -> int:
        """Appends a statement, and gives the operand that its value is: four times its number, since all statements but the last bind a value."""
        self.rows.append((code, type_, memory, operands))
        return 4 * (len(self.rows) - 1)

    def take(self, wanted: str = "") -> str:
        """The next word, which has to be the one that is wanted."""
        if wanted not in ("", self.words[0]):
            raise SyntaxError(f"{self.words[0]} stands where {wanted} is needed")
        return self.words.pop(0)

    def expression(self, outer: int = 0) -> int:
        """The operand that the next words mean, as far as all that is between them binds more tightly than `outer`."""
        word = self.take()
        if word[0].isdigit():
            self.constants.append(encode(vp.f32, float(word)))
            left = 4 * (len(self.constants) - 1) + 1  # the 1 says: a constant
        elif word in CALLS or word == "(":
            inner = [self.expression() for k in range(CALLS.get(word, 1)) if word == "(" or self.take("," if k else "(")]
            self.take(")")
            left = inner[0] if word == "(" else self.emit(word, "f32", *inner)
        elif word.isidentifier():
            left = self.emit("load", "f32", self.index, memory=self.arrays.setdefault(word, len(self.arrays)))
        else:
            raise SyntaxError(f"{word} stands where an operand is needed")
        while INFIX.get(self.words[0], (0, ""))[0] > outer:
            tightness, code = INFIX[self.take()]
            left = self.emit(code, "f32", left, self.expression(tightness))
        return left


program = Compiler("sqrt(x * x + y * y) / (1 + abs(x - 0.5)) - min(x, y) * 3").program
print(program)
try:
    artifact = vp.compile_native(program, targets=["sm_90", "wgsl", "cpu"])
except vp.Unsupported:  # machine code needs NVIDIA's linker, PTX nothing
    artifact = vp.compile_native(program, targets=["compute_90", "wgsl", "cpu"])
artifact.save("formula.vyre")  # and now perhaps on another machine:
pipeline = vp.device(sys.argv[1] if len(sys.argv) > 1 else None).load(vp.Artifact.load("formula.vyre"))
x, y = np.random.default_rng(7).random((2, 1_000_003), np.float32)
out = pipeline.dispatch({"x": x, "y": y})["out"]
expected = np.sqrt(x * x + y * y) / (1 + np.abs(x - 0.5)) - np.minimum(x, y) * 3
np.testing.assert_allclose(out, expected, rtol=0, atol=0 if pipeline.numerics == "strict" else 1e-5)
print(f"{', '.join(artifact.targets)} compiled; right on {pipeline.device.name}")
