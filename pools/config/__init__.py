"""The configuration of a pool: how each part is read, checked and written back. Pure."""
