"""Connection to the server: HTTP client, WebSocket channel and the messages of the protocol."""
