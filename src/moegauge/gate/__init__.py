"""PRODUCT B: whether a new kernel may replace the old one. Pure rules; no I/O."""
