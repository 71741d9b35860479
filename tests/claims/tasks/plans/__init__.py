"""Plans: parsing, pages, the form of a new run."""
