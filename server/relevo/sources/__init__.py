"""Where items come from: one file per adapter of the Source port."""
