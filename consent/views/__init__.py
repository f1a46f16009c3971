"""What a data holder sees. All of it works without JavaScript; a decision never appears in an address."""
