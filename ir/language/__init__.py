"""What a Program is: types, sizes, ops, statements, the Program itself, and the tables that describe them."""
