"""Compilation, threads, memory, array types and progress callbacks."""
