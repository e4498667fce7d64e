"""The best items of scores that are never all held."""
