"""The command line: a file per command, each importing what it needs when it is called."""
