"""Tables of counts: the number of people in each cell of one or two columns. Nothing here imports Django."""
