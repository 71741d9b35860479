"""One package for each provider, found by its name (`BERTH_PROVIDERS`). Only these packages may
import libraries of a cloud.
"""
