"""What a claim asks for, which pools and lanes it resolves to, and the pure decisions about it."""
