"""What goes wrong on demand: the words for it in tokens and rules, and the answers that they stand for."""
