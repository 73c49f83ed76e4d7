"""What tests share: what they make, the programs they start, and fixtures."""
