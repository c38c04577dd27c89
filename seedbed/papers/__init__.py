"""What papers state in figures, to set our own measurements beside."""
