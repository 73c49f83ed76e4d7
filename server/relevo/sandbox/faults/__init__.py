"""Faults on demand: the words for them in tokens and rules, and the answers that they stand for."""
