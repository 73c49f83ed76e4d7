"""Who may call over HTTP, and what they may do."""
