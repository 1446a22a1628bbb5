"""What is known of a kernel before it is written: how barriers divide it, and what its regions take from one another."""
