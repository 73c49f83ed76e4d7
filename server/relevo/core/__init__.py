"""Words, plug points and small tools that everything else uses."""
