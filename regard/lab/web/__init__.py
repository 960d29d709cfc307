"""The server: a JSON API, and the page whose files are in `regard/lab/reports/static`."""
