"""Reads and actions of operators, for commands, HTTP and the dashboard."""
