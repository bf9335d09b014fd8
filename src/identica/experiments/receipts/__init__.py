"""Results: a line for each row and seed, the ledger that keeps them, and the verdicts over them."""
