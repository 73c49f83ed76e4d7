"""The cycles: each file is one duty, each step one bounded batch."""
