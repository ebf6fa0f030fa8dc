"""The embedded platform: API server, controllers and node agent on one machine, for development and tests."""
