"""REST API of members, slots and agents."""
