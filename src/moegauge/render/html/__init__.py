"""Pages of records: one self-contained file each, which loads nothing."""
