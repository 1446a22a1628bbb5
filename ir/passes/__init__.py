"""Passes: Programs to equivalent, better ones.

A pass is a function from a Program to a Program, one loop over its statements through `ir.language.assembler.Rewriter`. `scalarise` takes
vectors apart; `expand` writes ops out that are made of simpler ones; `fold`, `simplify`, `cse` and `dce` shrink; `guards` gathers
bounds checks, and `bounds` says which are not needed; `written` says which arrays need no zeros. `pipeline` puts them in order.
"""

from __future__ import annotations

from vyre_py.ir.passes.pipeline import PASSES, Optimised, PassReport, PassStep, Rewrite, annotate, optimise, unoptimised

__all__ = ["PASSES", "Optimised", "PassReport", "PassStep", "Rewrite", "annotate", "optimise", "unoptimised"]
