"""The app's side: verbs that work in the caller's transaction, free of dependencies."""
