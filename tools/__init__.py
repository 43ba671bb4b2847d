"""Long checks, see README.md; not part of the package."""
