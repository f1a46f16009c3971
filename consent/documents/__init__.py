"""Documents for people, on paper and as PDF: letters, forms, receipts, and the codes printed on them."""
