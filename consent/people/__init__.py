"""People of a study: their pseudonyms, the people who answer for them, and their numbers."""
