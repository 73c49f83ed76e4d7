"""The outcomes of a claim's deliveries: decided from tickets and replies, and recorded."""
