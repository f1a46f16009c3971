"""Joint runs across several installations: keys, requests from sites to their hub, and each side's steps.

:mod:`learning.sites` contains the protocol and the mathematics, without a database.
"""
