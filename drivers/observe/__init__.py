"""What is counted, shown and traced of a device."""
