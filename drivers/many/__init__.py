"""Many launches as one call: sequences, graphs, chains."""
