"""Models over HTTP: recommendations, explanations and exact updates; the extra `serve`."""
