"""What is said to lane laguna_m8 in vLLM by the environment, besides the contract's selectors; imports nothing."""

ARM = "MOEGAUGE_LAGUNA_M8_ARM"
"""Environment variable, read with a selector on: ``candidate`` (the default), or ``incumbent`` for the pair."""
ARMS = ("candidate", "incumbent")
