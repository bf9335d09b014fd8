"""Experiments: the demo, and in time the papers' tables and figures as data."""
