"""Readers of profiler traces; each produces kernels.trace.Trace."""
