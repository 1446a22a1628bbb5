"""Worker processes: those of an executor, and those that compile."""
