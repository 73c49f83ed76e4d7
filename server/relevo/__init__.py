"""Relevo: a relay that carries events to phones and never drops the baton."""

__version__ = "0.1.0"
