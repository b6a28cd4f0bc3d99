"""THE VERBS: the only orchestration, and the public Python API."""
