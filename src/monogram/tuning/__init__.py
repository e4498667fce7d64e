"""The best setting for a log: what settings share is computed once, and the test part is read once, at the end."""
