"""Lane laguna_m8: gather and finalize of a MoE layer at eight tokens, two launches against one."""
