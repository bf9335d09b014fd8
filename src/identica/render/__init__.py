"""Pictures from latents: the 3DIdent scene, drawn on whatever device the latents are on."""

from identica.render.three_d_ident import FACTORS, VERSION, Quality, ThreeDIdentScene, check_latents

__all__ = ["FACTORS", "VERSION", "Quality", "ThreeDIdentScene", "check_latents"]
