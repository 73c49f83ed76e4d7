"""The messages of a claim: each event's text for each phone, before anything is journalled."""
