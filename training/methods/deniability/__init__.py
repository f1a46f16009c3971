"""Rows by plausible deniability, in rehearsal studies."""
