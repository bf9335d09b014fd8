"""Paper A on rendered scenes: Tables 4 and 5."""
