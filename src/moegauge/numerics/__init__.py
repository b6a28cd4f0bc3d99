"""Arithmetic of bits: words of BF16 and FP32, and their operations in integers."""
