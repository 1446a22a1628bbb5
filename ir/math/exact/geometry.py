"""Ops over whole vectors, component by component: each step is rounded in the components' type, from the first to the last."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

from vyre_py.ir.language.nodes import Atom, const
from vyre_py.ir.math.builder import MathBuilder

__all__ = ["Components", "all_", "any_", "cross", "distance", "dot", "length", "normalize", "reflect", "refract"]

Components = tuple[Atom, ...]


def dot(m: MathBuilder, a: Components, b: Components) -> Components:
    """The sum of the products, left to right, unfused."""
    products: list[Atom] = [m("mul", x, y) for x, y in zip(a, b, strict=True)]
    return (reduce(lambda total, product: m("add", total, product), products),)


def length(m: MathBuilder, a: Components) -> Components:
    """sqrt(dot(a, a))."""
    return (m("sqrt", *dot(m, a, a)),)


def distance(m: MathBuilder, a: Components, b: Components) -> Components:
    """length(a - b)."""
    return length(m, tuple([m("sub", x, y) for x, y in zip(a, b, strict=True)]))


def normalize(m: MathBuilder, a: Components) -> Components:
    """a / length(a): NaN for the zero vector."""
    (size,) = length(m, a)
    return tuple([m("div", x, size) for x in a])


def reflect(m: MathBuilder, i: Components, n: Components) -> Components:
    """i - 2 * dot(n, i) * n, from left to right."""
    (across,) = dot(m, n, i)
    twice = m("mul", const(across.type, 2.0), across)
    return tuple([m("sub", x, m("mul", twice, y)) for x, y in zip(i, n, strict=True)])


def refract(m: MathBuilder, i: Components, n: Components, eta: Components) -> Components:
    """eta * i - (eta * dot(n, i) + sqrt(k)) * n for k = 1 - eta * eta * (1 - dot(n, i)^2); zeros where k < 0, and nothing passes."""
    (ratio,), (across,) = eta, dot(m, n, i)
    zero, one = const(ratio.type, 0.0), const(ratio.type, 1.0)
    k = m("sub", one, m("mul", m("mul", ratio, ratio), m("sub", one, m("mul", across, across))))
    along = m("add", m("mul", ratio, across), m("sqrt", k))
    none = m("lt", k, zero)
    return tuple([m("select", none, zero, m("sub", m("mul", ratio, x), m("mul", along, y))) for x, y in zip(i, n, strict=True)])


def cross(m: MathBuilder, a: Components, b: Components) -> Components:
    """a.yzx * b.zxy - a.zxy * b.yzx."""
    turned = list(pairwise((1, 2, 0, 1)))  # y z, z x, x y
    return tuple([m("sub", m("mul", a[i], b[j]), m("mul", a[j], b[i])) for i, j in turned])


def all_(m: MathBuilder, a: Components) -> Components:
    """Whether every component is true."""
    return (reduce(lambda left, right: m("logical_and", left, right), a),)


def any_(m: MathBuilder, a: Components) -> Components:
    """Whether any component is true."""
    return (reduce(lambda left, right: m("logical_or", left, right), a),)
