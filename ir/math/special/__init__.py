"""Special functions: the error function and its kin."""
