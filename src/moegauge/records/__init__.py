"""WHAT IS TRUE: frozen, versioned, strict records. No I/O, no engine, no device."""
