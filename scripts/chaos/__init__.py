"""Real processes under real faults, and a history that another program checks: `make chaos`."""
