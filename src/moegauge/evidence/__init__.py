"""KEEPING IT: digests that say how they were made, write-once folders, canonical tables."""
