"""PostgreSQL: named statements, direct connections, locks, guards, constraints of rows and
state machines.
"""
