"""API tokens, with which a program uses the REST API on behalf of a user."""
