"""How a delivery is sent: claimed, journalled, posted, settled."""
