"""Links from files: pairs by ids or names, and the negatives that come with them."""
