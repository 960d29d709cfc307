"""Errors, settings, tables of parts, files and trust: what every folder uses."""
