"""How good is it: metrics by name, protocols, intervals."""
