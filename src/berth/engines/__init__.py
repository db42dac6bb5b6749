"""Engines: where jobs really run, or seem to."""
