"""Passes: what each makes of small Programs, that none changes results, and that each is linear.

A file of `filetests/passes` holds a Program behind a line `// run: PASSES`, names from the registry or `optimise`; behind `// becomes`
stands the text that must come out, with what is known of each access. VYRE_UPDATE=1 writes that part anew.
"""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from generator import Case, generate
from indices import random_program

from vyre_py.ir.assembler import Assembler
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.nodes import Barrier, If
from vyre_py.ir.ops import OPS
from vyre_py.ir.parser import parse
from vyre_py.ir.passes import PASSES, Optimised, annotate, optimise, unoptimised
from vyre_py.ir.printer import print_program
from vyre_py.ir.program import Program
