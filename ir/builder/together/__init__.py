"""What many compute together, written in statements of one invocation: folds of a workgroup, collectives of ranks."""
