"""ARITHMETIC OF ROUTING: checks of routed ids and counts; pure functions."""
