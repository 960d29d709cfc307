"""The formula and its parts."""
