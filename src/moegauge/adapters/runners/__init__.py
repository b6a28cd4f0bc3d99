"""Runners: one file a kernel kind. Each states its boundary and is checked against a float64 reference first."""
