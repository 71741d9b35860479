"""The request of a claim, the pools and lanes that it resolves to, and pure decisions about it."""
