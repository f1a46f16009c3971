"""Work in the background: claims on rows, parts of it done once, guards against errors, and the sweep."""
