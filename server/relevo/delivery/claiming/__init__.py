"""A claim in the database: what is due, taken, journalled before each request, settled, handed back."""
