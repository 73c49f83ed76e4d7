"""FCM in the sandbox: its tokens and answers, and the service itself."""
