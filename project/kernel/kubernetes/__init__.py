"""Client of the Kubernetes API server with one total timeout per call: connections, credentials,
proxies, watches.
"""
