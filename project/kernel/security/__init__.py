"""Encryption at rest, login throttling, sessions, client addresses and the sandbox for
untrusted input.
"""
