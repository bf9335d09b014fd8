"""Paper A and its workshop version: Tables 1 and 2, Figure 2, L_AU."""
