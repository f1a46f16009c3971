"""Tables of counts, as the services see them."""
