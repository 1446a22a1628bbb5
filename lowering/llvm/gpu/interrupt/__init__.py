"""GPU kernels that can be ended from outside."""
