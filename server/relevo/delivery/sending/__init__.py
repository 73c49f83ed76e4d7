"""The requests of a claim: sent, waited for, checked when they are answered, and sent in parts if refused."""
