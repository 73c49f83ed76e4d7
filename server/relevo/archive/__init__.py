"""How a month leaves the hot tables and comes back."""
