"""Memory and launches shared with other libraries, and with C."""
