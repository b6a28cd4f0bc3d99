"""Lane laguna_m8 on a device: Triton kernels, their launchers, and the same arithmetic in torch on the host."""
