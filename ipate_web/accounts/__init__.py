"""Accounts: sign-in, addresses, passwords, second factor, single sign-on, and staff accounts (django-allauth)."""
