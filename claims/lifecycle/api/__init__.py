"""REST to change and end claims, to drain members, and about pools."""
