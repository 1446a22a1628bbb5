"""The walk for GPUs: one thread for each invocation, and branches for the body's structure."""
