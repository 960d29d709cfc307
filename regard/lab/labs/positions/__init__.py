"""What can a model learn from each kind of position?"""
