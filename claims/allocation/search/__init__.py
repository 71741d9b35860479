"""Finds and locks the slots of claims that are not simple."""
