"""Paper B on digits: known latents through a VAE, augmented views, and what augmentations do to latents."""
