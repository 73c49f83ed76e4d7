"""Apple's push service (APNs)."""
