"""Tables of counts: the number of people in each cell of one or two columns. Imports no Django."""
