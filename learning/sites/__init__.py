"""Sums over sites: hospitals keep their records, and only noisy sums travel. docs/sites.md has protocol and threats.

Nothing here knows a person, a mechanism or a database: a question is a digest and the size of its noise, an answer is
an array of numbers. ``documents`` has what is signed, ``lattice`` the whole numbers and their noise, ``masks`` what
hides them from the hub, and ``protocol`` what site and hub do, with all that they refuse.
"""
