"""The bench of port pools: allocation alone, and whole syncs with the clouds of the tests."""
