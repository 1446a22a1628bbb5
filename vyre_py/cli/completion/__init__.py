"""Completion of the command line in shells: scripts made from the parser's own tree, so that no command or option is missing."""
