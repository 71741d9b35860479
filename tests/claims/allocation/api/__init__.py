"""Tests of claims, allocation, api."""
