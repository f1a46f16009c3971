"""Tables of counts: the number of people in each cell of one or two columns. Does not import Django."""
