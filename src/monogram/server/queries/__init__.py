"""Answers to queries: batching of concurrent requests, responses, the item catalogue."""
