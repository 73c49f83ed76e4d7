"""Relevo on a cluster of PostgreSQL whose primary changes: what is lost, and how long nothing happens."""
