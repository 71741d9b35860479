"""Pages of a pool's configuration and of API tokens, and the base of every page."""
