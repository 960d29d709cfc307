"""The exercises, one file each with a list `PARTS`, and beside it a page in each language."""
