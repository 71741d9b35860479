"""Benches of allocation, API and live pages (`manage.py bench`), with the product's processes on a
scratch database.
"""

from claims.benches import agents, allocation, approve, http, life, live, scale, wake
from claims.benches.ports import bench as ports

__all__ = ["agents", "allocation", "approve", "http", "life", "live", "ports", "scale", "wake"]
