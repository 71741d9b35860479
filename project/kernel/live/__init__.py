"""Live pages: the hub, the tail of the event log, WebSockets and page regions."""
