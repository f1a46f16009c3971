"""Joint runs over several installations: keys, requests of sites to their hub, and how each side asks.

:mod:`learning.sites` has protocol and mathematics, without a database.
"""
