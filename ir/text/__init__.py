"""Programs as `.vir` text: words, the parser, the printer, and colours for notebooks."""
