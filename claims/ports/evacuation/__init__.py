"""Evacuation of load balancers: the claims of a member move to other members of its pool."""
