"""Generates a typed Python module for each file of named SQL statements.

`make statements` writes the modules. A test compares them with what is generated anew.
"""
