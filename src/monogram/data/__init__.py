"""A log becomes a matrix."""
