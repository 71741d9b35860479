"""Benches of allocation, of the API and of live pages: `manage.py bench`. Each runs what users run, on a scratch database."""

from claims.benches import allocation, approve, http, live, wake

__all__ = ["allocation", "approve", "http", "live", "wake"]
