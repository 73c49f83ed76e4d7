"""Shared parts of push services over HTTP/2."""
