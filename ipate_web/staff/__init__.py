"""Staff pages: views, forms, template tags and URLs, without business logic."""
