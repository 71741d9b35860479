"""The only package that may know a cloud's libraries."""
