"""FCM, APNs and Web Push on loopback, over TLS with a certificate authority of their own."""
