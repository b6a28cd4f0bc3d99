"""Device halves of registered lanes."""
