"""Wording: texts of a study and its forms, and how they are displayed."""
