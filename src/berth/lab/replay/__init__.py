"""Traces played again under other policies."""
