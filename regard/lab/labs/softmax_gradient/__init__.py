"""Why is q·k divided by √d?"""
