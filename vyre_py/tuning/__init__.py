"""Which parameters of a Program are the fastest on a device: found by trying, ordered by a model, kept on the disk."""
