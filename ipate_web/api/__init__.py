"""The REST API for researchers: thin endpoints over services and selectors. It returns only what may be published."""
