"""Documents that people get on paper and as PDF: letters, forms, receipts, and the codes on them."""
