"""Dense linear algebra on arrays."""
