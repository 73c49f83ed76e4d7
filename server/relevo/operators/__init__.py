"""What operators read and do, whichever face they use."""
