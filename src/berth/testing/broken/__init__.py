"""Policies and engines that each break one promise on purpose."""
