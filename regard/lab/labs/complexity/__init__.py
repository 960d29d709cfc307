"""At which sequence length does each kind of layer become the cheapest?"""
