"""Published findings about attention, repeated at a laptop's size with several seeds."""
