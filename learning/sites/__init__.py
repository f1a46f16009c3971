"""Sums across sites: hospitals keep their records, and only noisy sums are sent. Protocol and threats: docs/sites.md.

This package is independent of people, mechanisms and databases: a question is a digest and the size of its noise, and
an answer is an array of numbers. ``documents`` contains the signed documents; ``lattice`` the integers, their noise and
the masks that hide them from the hub; and ``protocol`` the actions of site and hub, with all reasons to refuse.
"""
