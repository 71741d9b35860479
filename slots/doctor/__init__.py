"""Doctor checks and Prometheus metrics of members and slots."""
