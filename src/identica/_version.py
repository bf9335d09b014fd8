"""The version, in the source so that a checkout without package metadata knows it too."""

__version__ = "0.1.0"
