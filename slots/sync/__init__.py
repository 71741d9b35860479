"""Members made equal to their rows by a provider, and what the provider sees, written down."""
