"""Pages of data holders. All pages work without JavaScript; a decision never appears in a URL."""
