"""Passes: Programs to equivalent, better ones.

A pass is a function from a Program to a Program, one loop over its statements through `ir.passes.rewriter.Rewriter`. `scalarise` splits
vectors into components; `expand` replaces ops by simpler ones; `fold`, `simplify`, `cse` and `dce` shrink the Program; `guards` hoists
bounds checks, and `bounds` proves which are not needed (`remarks` says by what); `written` proves which arrays need no zeros. `pipeline` has their order.
"""

from __future__ import annotations

from vyre_py.ir.passes.pipeline import (
    PASSES,
    Optimised,
    PassReport,
    PassStep,
    Rewrite,
    Watcher,
    as_written,
    optimise,
    unoptimised,
)
from vyre_py.ir.passes.remarks import annotate, proofs

__all__ = ["PASSES", "Optimised", "PassReport", "PassStep", "Rewrite", "Watcher", "annotate", "as_written", "optimise", "proofs", "unoptimised"]
