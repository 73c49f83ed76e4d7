"""Firebase Cloud Messaging (FCM)."""
