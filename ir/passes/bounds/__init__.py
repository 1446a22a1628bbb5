"""Which indices are known to lie inside: the range analysis, its proofs, and the guards for the rest."""
