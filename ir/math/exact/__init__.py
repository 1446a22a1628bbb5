"""Expansions whose results are exact: fields of bits, packing, remainders, saturating arithmetic, geometry."""
