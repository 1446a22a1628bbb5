"""The transcendental functions of f64, one module beside each of `ir/math` by its name.

Their polynomials are made by `tests/math_coefficients.py`, which says what each approximates.
"""
