"""The explorer: a server with a JSON API, and its web page."""
