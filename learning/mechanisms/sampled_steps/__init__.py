"""Private gradient steps over samples of the holders, and what they are compared with."""
