"""Base classes of REST endpoints, URL converters and the WebSocket of live pages."""
