"""The machine: compilation, threads, memory."""
