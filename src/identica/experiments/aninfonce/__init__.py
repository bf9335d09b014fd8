"""Paper B on synthetic latents: precisions, scaling, hard negatives, ensembles, a marginal that moves."""
