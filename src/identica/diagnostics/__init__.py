"""What holds, what was identified, and whether one may trust it."""

from identica.diagnostics.identification import Identification, identification

__all__ = ["Identification", "identification"]
