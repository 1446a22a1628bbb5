"""erfinv: every argument; at most 2 ULP (of f32 1.381 and of f64 1.398 observed).

Method: erfinv(x) = x P(w) with w = -log(1 - x^2), of which P varies slowly (M. B. Giles, Approximating the erfinv function, GPU Computing Gems, 2011): a
polynomial in w up to 3.5, and in sqrt(w) beyond. 1 - x^2 is exact in two parts, so that w has all its bits for small x, too. The constant term of P is
kept apart, so that it and the product with x round but once; what the root's rounding lost joins the others.

Coefficients, relative to the result: erfinv(x)/x of w up to 3.5, of sqrt(w) - 2.5 from 1.87 to 4, and, which f64 alone reaches, of sqrt(w) - 5 beyond; each at
most 0.05 ULP.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.language.types import f32, f64
from vyre_py.ir.math.builder import MathBuilder
from vyre_py.ir.math.log import log_sum, parted, share
from vyre_py.ir.math.pairs import product, sum_of
from vyre_py.ir.math.words import with_sign_of

__all__ = ["erfinv"]


class _Piece(NamedTuple):
    """P for a sqrt(w) below `end`: a constant, and a polynomial in w, or in sqrt(w) less `origin`, for the rest."""

    end: float
    origin: float
    middle: float
    rest: tuple[float, ...]


_BORDER: Final = 3.5  # of w
# The first is of w.
_PIECES: Final = {
    f32: (
        _Piece(0.0, 0.0, 0.8862269, (
            3.350336e-08, 0.23201363, 0.011549726, -0.002336584, -0.00012511607, 4.326717e-05, 4.3598325e-06, -2.0261057e-06, 2.2174234e-07, -8.492904e-09,
        )),
        _Piece(4.0, 2.5, 2.33, (
            0.0059454376, 0.98227316, 0.035190664, -0.031163238, 0.01870004, -0.005136856, -0.002042221, 0.0024240278, -0.00056461646, -0.00036166084,
            0.0002947718, -8.210765e-05, 8.386338e-06,
        )),
    ),
    f64: (
        _Piece(0.0, 0.0, 0.886226925452758, (
            -3.7512106561145515e-17, 0.2320136665346543, 0.01154934203827838, -0.002335101641728405, -0.0001280432932845275, 4.661143547729971e-05,
            2.0200053900310383e-06, -1.012593477649423e-06, -3.722779272711117e-08, 2.270648013892965e-08, 8.399180331550942e-10, -5.888176723429278e-10,
            2.1351451634937247e-11, -4.561470408824017e-12, 6.089724159519906e-12, -1.7332485944617175e-12, 2.444649246764065e-13, -1.918888930202197e-14,
            7.759011796637771e-16, -1.1254217728000014e-17,
        )),
        _Piece(4.0, 2.5, 2.33, (
            0.005945363810791845, 0.9822731393969597, 0.03519041038485582, -0.03116272553509678, 0.01870378726887314, -0.005142902817021014,
            -0.0020606085289203626, 0.002460235488317265, -0.0005386529599858813, -0.0004563244304264392, 0.00033152376888698036, -6.64462800058595e-06,
            -8.503079418277394e-05, 3.378577333988335e-05, 9.246683932207173e-06, -1.2152672236400207e-05, 2.2477240430409623e-06, 2.2463884458388927e-06,
            -1.449101150856185e-06, -7.536064054525729e-10, 3.7170541619621373e-07, -1.612062311145745e-07, -1.6426835005773422e-08, 4.617725772594223e-08,
            -2.2783147067590433e-08, 5.945423902829714e-09, -8.486229418581715e-10, 5.247367572002941e-11,
        )),
        _Piece(6.01, 5.0, 4.85, (
            -9.359859141530335e-05, 1.0103004648645448, -0.0001387193183800968, -0.00021503011979796778, 7.599527809575673e-05, -1.9681771213677443e-05,
            4.5260525326790815e-06, -9.930253715527744e-07, 2.2905280824042982e-07, -6.757320964831147e-08, 2.901859620384045e-08, -1.521259746487356e-08,
            7.821667973241039e-09, -3.5356001431221575e-09, 1.3156285135180204e-09, -3.795894196076762e-10, 6.982639961714785e-11, 1.4198978445778485e-11,
            -2.046062289190808e-11, 5.981795360250827e-12,
        )),
    ),
}  # fmt: skip


def erfinv(m: MathBuilder, x: Atom) -> Atom:
    """The y with erf(y) = x: odd, -0 for -0, infinite for -1 and 1, NaN beyond them."""
    size = m("abs", x)
    square, square_lost = product(m, size, size)
    total, lost = sum_of(m, 1.0, m("neg", square))
    total, lost = sum_of(m, total, m("sub", lost, square_lost))
    i, f, scale = parted(m, total)
    w = m("neg", log_sum(m, i, f, share(m, lost, f, scale)))
    root = m("sqrt", w)
    root_lost = m("fma", m("neg", root), root, w)

    near, *others = _PIECES[x.type]
    middle: Atom = const(x.type, near.middle)
    rest = _rest(m, w, near)
    far = m("gt", w, _BORDER)
    for piece in others:
        # Half of the lost part over the root is what the root lacks; the origin is near enough.
        t = m("fma", root_lost, 0.5 / piece.origin, m("sub", root, piece.origin))
        middle = m("select", far, piece.middle, middle)
        rest = m("select", far, _rest(m, t, piece), rest)
        far = m("gt", root, piece.end)
    result = m("fma", size, middle, m("mul", size, rest))
    ends = m("select", m("eq", size, 1.0), const(x.type, float("inf")), float("nan"))
    return with_sign_of(m, m("select", m("lt", size, 1.0), result, ends), x)


def _rest(m: MathBuilder, t: Atom, piece: _Piece) -> Atom:
    """The polynomial, in which the square's term is small beside the first two, so that these round but once."""
    low, slope, *tail = piece.rest
    return m("fma", t, slope, m("fma", m("mul", t, t), m.polynomial(t, tail), low))
