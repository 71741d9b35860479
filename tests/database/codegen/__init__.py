"""Generates a typed Python module for each file of named SQL statements.

`make statements` writes the modules. A test fails if a module is stale.
"""
