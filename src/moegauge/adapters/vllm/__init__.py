"""Recording inside vLLM: a plugin, the recorder it attaches to each worker, and an offline engine to record."""
