"""Sums over sites: hospitals keep their records, and only noisy sums travel. docs/sites.md has protocol and threats.

Nothing here knows a person, a mechanism or a database: a question is a digest and the size of its noise, an answer is
an array of numbers. ``documents`` has the signed documents, ``lattice`` the whole numbers, their noise and the masks
that hide them from the hub, and ``protocol`` the actions of site and hub, with all that they refuse.
"""
