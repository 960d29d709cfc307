"""See a model at work: a server with a JSON API, and the page that asks it."""
