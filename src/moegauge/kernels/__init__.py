"""WHAT IS MEASURED: the registry of kernel kinds, and which device intervals belong to which invocation."""
