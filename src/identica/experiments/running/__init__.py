"""From a plan to receipts: training what is missing, together, in stages, resumably, with the time left shown."""
