"""ARITHMETIC OF TIME: pure functions on integer nanoseconds."""
