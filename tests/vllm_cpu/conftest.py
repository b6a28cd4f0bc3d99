"""Tests that need vLLM on the host processor: scripts/test-vllm-cpu runs them in an environment of their own."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("vllm") else ["test_*.py"]
