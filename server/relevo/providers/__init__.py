"""Push services, each an adapter of the PushProvider port."""
