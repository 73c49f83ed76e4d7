"""The native push services on loopback, over TLS with a certificate authority of their own."""
