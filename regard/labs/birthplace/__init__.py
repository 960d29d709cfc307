"""What does pretraining put into a model, and does the model know when it does not know?"""
