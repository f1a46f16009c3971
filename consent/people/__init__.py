"""People of a study: who they are, who answers for them, and how many there are."""
