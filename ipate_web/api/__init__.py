"""The REST API for researchers: thin endpoints over services and selectors. Only what may be published leaves here."""
