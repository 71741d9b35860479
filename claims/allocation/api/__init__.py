"""REST to create, list and read claims, with its permissions and schemas."""
