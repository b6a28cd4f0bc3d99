"""One file a verb: parse, call one job, print."""
