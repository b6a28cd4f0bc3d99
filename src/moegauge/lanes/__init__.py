"""REGISTERED LANES: what one replacement experiment is about. No engine, no device."""
