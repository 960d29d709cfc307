"""What does attention add to a translator, and where does it look?"""
