"""A project: its rate and breaker, connections, request pool and pauses, and the rules of its push service."""
