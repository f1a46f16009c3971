"""Accounts: sign-in, addresses, passwords, second factor, single sign-on, and accounts of staff (django-allauth)."""
