"""Long checks and the results of the README, see README.md; not part of the package."""
