"""Private gradient steps over samples of the holders: what is planned, what a round trains, what is released."""
