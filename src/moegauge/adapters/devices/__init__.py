"""Devices: identity, clocks, caches. Read, never set."""
