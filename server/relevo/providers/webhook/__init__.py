"""Webhooks: pushes and news to servers."""
