"""Identity, permissions, tokens, authentication of callers and rate limits."""
