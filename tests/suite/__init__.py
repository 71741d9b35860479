"""Tests of the test suite itself."""
