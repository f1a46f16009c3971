"""API tokens, which let a program use the REST API on behalf of a user."""
