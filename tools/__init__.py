"""What is made from the code for its developers: reference pages, pictures, the schema."""
