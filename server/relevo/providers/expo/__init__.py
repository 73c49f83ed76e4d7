"""Expo."""
