"""Arrays in, arrays out: no ids, no recommender names, no printing."""
