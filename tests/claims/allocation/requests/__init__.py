"""Tests of claims, allocation, requests."""
