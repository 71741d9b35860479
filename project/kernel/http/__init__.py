"""HTTP and ASGI: request handling, limits, problem details, the base of the REST API and
long polls.
"""
