"""SVG figures, self-contained HTML pages and reports."""
