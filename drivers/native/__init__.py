"""Native code of our own that is no kernel: what the devices whose calls it makes share."""
