"""Terraform and other tasks that agents run for claims. Modules directly in here import nothing
else of claims.
"""
