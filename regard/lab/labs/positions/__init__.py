"""What does a position tell?"""
