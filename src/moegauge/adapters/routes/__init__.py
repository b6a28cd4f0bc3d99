"""Readers of routed inputs that other tools wrote."""
