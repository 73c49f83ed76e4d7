"""What push services over HTTP/2 have in common."""
