"""What runs of chaos and models found, kept and published: `make proof`."""
