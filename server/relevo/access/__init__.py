"""Callers over HTTP: how they prove who they are, and their rights."""
