"""An old and a new implementation on the same captured inputs: strata, exactness classes, and the verdict."""
