"""The best items of each user by score, without an array of all scores."""
