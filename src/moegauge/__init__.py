"""moegauge: align a fused MoE kernel's isolated measurements with its time in serving.

The public Python API is the package ``moegauge.jobs`` (one function a verb); the records those functions
return live in ``moegauge.records``. Everything else is an implementation detail that may move.
"""

__version__ = "0.1.0"
