"""Search for the best model and parameters on a log; settings that share a computation are tried together."""
