"""The findings of chaos and model runs, kept and published: `make proof`."""
