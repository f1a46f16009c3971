"""Staff pages: views, forms, template tags, URLs, without business logic."""
