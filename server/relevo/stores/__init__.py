"""Where exported months are kept: one file per store."""
