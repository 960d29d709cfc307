"""How wide should a kernel look, and can attention learn it?"""
