"""The inverse of S + Λ: by items, by users, on disk, matrix-free, and its changes."""
