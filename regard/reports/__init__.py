"""What people look at: figures as SVG, one-file HTML pages, the report of a comparison."""
