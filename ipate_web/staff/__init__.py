"""Staff pages: views, forms, template tags, URLs. No business logic."""
