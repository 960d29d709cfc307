"""Which score and which normaliser matter, and where?"""
