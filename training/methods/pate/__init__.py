"""Teachers vote: who is in which of them, what they say, and the vote."""
