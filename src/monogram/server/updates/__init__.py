"""Exact updates: admission of changes, durable storage of events, background refresh of the model."""
