"""Joint runs across several installations: keys, requests from sites to their hub, and the steps at hub and sites.

:mod:`learning.sites` contains the protocol and the mathematics, without a database.
"""
