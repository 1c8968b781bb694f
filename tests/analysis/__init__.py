"""What is made of records: metrics, tables, pictures, reports."""
