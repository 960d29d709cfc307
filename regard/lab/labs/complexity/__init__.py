"""From which length does which layer pay?"""
