"""Benches of allocation, of the API and of live pages: `manage.py bench`. Each runs what users
run, on a scratch database.
"""

from claims.benches import agents, allocation, approve, http, live, scale, wake

__all__ = ["agents", "allocation", "approve", "http", "live", "scale", "wake"]
