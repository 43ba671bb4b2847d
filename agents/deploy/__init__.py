"""From a policy to cameras: exports, sites, running cameras, and the page that replays and shows them."""
