"""What does each rung of attention add to a mean of word vectors?"""
