"""The cluster client: timeouts, name lookups, proxies, credentials."""
