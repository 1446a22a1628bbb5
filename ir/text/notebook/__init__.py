"""How objects are shown in notebooks: HTML."""
