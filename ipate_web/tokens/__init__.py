"""API tokens: a program uses the REST API on behalf of a user."""
