"""The sentiment lab: what each step from a mean of word vectors to a transformer adds."""
