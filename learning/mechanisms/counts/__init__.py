"""Tables of counts: how many people are in each cell of one or two columns. Nothing here imports Django."""
