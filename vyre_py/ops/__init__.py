"""Ready Programs, and the objects that hold what they need."""
