"""Pages of data holders. All work without JavaScript; a decision never appears in a URL."""
