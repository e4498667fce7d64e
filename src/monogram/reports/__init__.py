"""Reports: text, tables and pictures, written as Markdown or as one HTML page."""
